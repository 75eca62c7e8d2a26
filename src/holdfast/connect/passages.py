"""The connections that all remote links of a host share: checked ones and others, on one TLS context."""

import os
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.connect.egress import guarded, look_up
from holdfast.wire.http.client import Pool
from holdfast.wire.http.url import Url


class Passages:
    """Sessions share the connections, but no cookie and no login: those are each endpoint's own."""

    def __init__(self, reachable: tuple[str, ...]) -> None:
        tls = _tls()
        self._direct = Pool(look_up, tls)
        self._guarded = Pool(guarded(reachable), tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._direct.close()
        await self._guarded.close()

    def pool(self, *, guarded: bool) -> Pool:
        """The connections to a link's own server."""
        return self._guarded if guarded else self._direct

    def way(self, home: Url, *, guarded: bool) -> Callable[[Url], Pool]:
        """The connections to whatever a server names: past the guard, unless it is on the server's own host."""
        own = self.pool(guarded=guarded)
        return lambda url: own if url.host == home.host else self._guarded


def _tls() -> ssl.SSLContext:
    """The system's authorities, or those that the usual variables name. It takes 900 kB and 40 ms: one for all."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
