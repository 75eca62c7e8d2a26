"""The connections that all remote links of a host share, and the way of each link to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from holdfast.connect.egress import KEPT, Guard, Guarded, Passage, Way
from holdfast.connect.logins import has_login, login_file
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse


class Passages:
    """The connections, guarded and not, on one TLS context. Sessions share them, but no cookie."""

    def __init__(self, reachable: tuple[str, ...], logins: Path) -> None:
        tls = httpx2.create_ssl_context()
        guard = Guarded(reachable)
        self._direct = Way(*(httpx2.AsyncHTTPTransport(verify=tls, limits=KEPT) for _ in range(2)))
        self._guarded = Way(*(Guard(guard, tls) for _ in range(2)))
        self._logins = logins

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for way in (self._direct, self._guarded):
            await way.brief.aclose()
            await way.long.aclose()

    @asynccontextmanager
    async def client(
        self, spec: ServerSpec, *, guarded: bool, terms: Terms, auth: httpx2.Auth | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A link's own client: its own cookies and credentials, over connections that are shared."""
        assert isinstance(spec.transport, Http | Sse)
        try:
            host = httpx2.URL(spec.transport.url).host
        except httpx2.InvalidURL as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"The address of {spec.name!r} is no address: {error}."
            ) from None
        passage = Passage(
            direct=self._direct,
            guarded=self._guarded,
            home="" if guarded else host,
            most_bytes=terms.limits.line_bytes,
        )
        timeout = httpx2.Timeout(terms.connect_seconds, read=None, pool=None)
        async with httpx2.AsyncClient(
            transport=passage, timeout=timeout, trust_env=False, auth=auth or self._stored_login(spec)
        ) as client:
            yield client

    def _stored_login(self, spec: ServerSpec) -> httpx2.Auth | None:
        assert isinstance(spec.transport, Http | Sse)
        if not has_login(spec):
            return None
        file = login_file(self._logins, spec.transport.url)
        if not file.exists():
            return None
        from holdfast.connect.oauth import Login, Provider

        return Login(spec.name, Provider(spec.transport.url, file, fresh=False))
