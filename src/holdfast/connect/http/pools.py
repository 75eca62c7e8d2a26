"""The connections that all remote links of a host share: guarded and others, with one TLS context."""

import io
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Self

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientOSError,
    ClientProxyConnectionError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
)
from yarl import URL

from holdfast.connect.http.egress import AddressPolicy, EgressResolver, LookUp, is_literal, look_up
from holdfast.connect.http.protocol import MAX_HEAD_BYTES, MAX_HEADERS, BoundedConnector
from holdfast.connect.http.proxies import NO_PROXIES, Proxies
from holdfast.connect.http.response import (
    HttpResponse,
    UnreachableError,
    broken_response,
)
from holdfast.connect.http.url import display_url
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_NOT_ADDED = ("Accept", "Content-Type", "User-Agent")  # headers that aiohttp would add by itself
_AT_ONCE = 1024 * 1024  # bytes
_ZONE = re.compile(r"%[^]]*")


class Pool:
    """Sends requests to any number of servers. An idle connection is kept for a minute at most.

    No redirect is followed, no cookie kept, no response decompressed, no request sent twice; and nothing is read
    from the user's `.netrc`, which is why proxies are chosen here and not by aiohttp.

    A guarded pool has no proxies, because a proxy connects to an address that we do not see. It leaves hosts that
    may be at any address to the `unguarded` pool.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        tls: ssl.SSLContext,
        *,
        proxies: Proxies = NO_PROXIES,
        unguarded: "Pool | None" = None,
        look_up: LookUp = look_up,
    ) -> None:
        self._policy = policy
        self._proxies = proxies
        self._unguarded = unguarded
        self._session = ClientSession(
            connector=BoundedConnector(
                resolver=EgressResolver(policy, look_up), ssl=tls, use_dns_cache=False
            ),
            cookie_jar=DummyCookieJar(),
            skip_auto_headers=_NOT_ADDED,
            auto_decompress=False,
            middlewares=(_send_once,),
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )

    async def request(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        connect_seconds: float,
    ) -> HttpResponse:
        """Send a request; returns when the head of the response is there. The caller closes the response."""
        host, port = url.raw_host or "", url.port or 0
        if self._unguarded is not None and self._policy.allows_any_address(host, port):
            return await self._unguarded.request(
                method, url, headers=headers, body=body, connect_seconds=connect_seconds
            )
        if is_literal(host):
            self._policy.select(host, port, [host])
        proxy = self._proxies.find(url)
        try:
            complete = _complete(url, headers)
            response = await self._session.request(
                method,
                url,
                headers=complete,
                data=_payload(body),
                allow_redirects=False,
                proxy=proxy,
                timeout=_timeout(connect_seconds),
            )
        except ClientError as error:
            raise _explain(error, proxy) from None
        except (ValueError, UnicodeError):
            raise HoldfastError(
                codes.BAD_ARGUMENT, "A header has a control character or half a character."
            ) from None
        return HttpResponse(response)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


class Pools:
    """One pool for links that may go anywhere and one for guarded links.

    Sessions share the connections, but no cookie and no login: those belong to an endpoint.
    """

    def __init__(self, reachable: tuple[str, ...]) -> None:
        self._tls = _tls_context()
        self._proxies = Proxies()
        self._reachable = reachable

    async def __aenter__(self) -> Self:
        guard = AddressPolicy(is_guarded=True, reachable=self._reachable)
        self._direct = Pool(AddressPolicy(is_guarded=False), self._tls, proxies=self._proxies)
        self._guarded = Pool(guard, self._tls, unguarded=self._direct)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._direct.close()
        await self._guarded.close()

    def pool(self, *, guarded: bool) -> Pool:
        """The connections to a link's own server."""
        return self._guarded if guarded else self._direct

    def choose_pool(self, home: URL, *, guarded: bool) -> Callable[[URL], Pool]:
        """The connections to any address that a server names: guarded, unless it is on the server's own host."""
        own = self.pool(guarded=guarded)
        return lambda url: own if url.raw_host == home.raw_host else self._guarded


async def _send_once(
    request: ClientRequest, handler: Callable[[ClientRequest], Awaitable[ClientResponse]]
) -> ClientResponse:
    """Keep aiohttp from sending a GET or DELETE again: the token in it is good for one request."""
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise broken_response(error) from None


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """A long body as a file, which aiohttp sends in chunks."""
    return io.BytesIO(body) if body is not None and len(body) > _AT_ONCE else body


@lru_cache(maxsize=64)
def _timeout(connect_seconds: float) -> ClientTimeout:
    """Only connecting has a deadline here; the caller has one for the rest."""
    return ClientTimeout(total=None, connect=connect_seconds, sock_connect=None, sock_read=None)


def _complete(url: URL, headers: Mapping[str, str]) -> Mapping[str, str]:
    complete = {"Accept-Encoding": "identity", **headers}
    "".join(complete.values()).encode()  # aiohttp would send half a character as it is
    if "%" in (url.raw_host or ""):
        complete["Host"] = _without_zone(url)
    return complete


def _without_zone(url: URL) -> str:
    """A zone means something on this machine only."""
    return _ZONE.sub("", url.host_port_subcomponent or "")


def _explain(error: ClientError, proxy: URL | None) -> Exception:
    match error:
        case ClientHttpProxyError():
            assert proxy is not None
            reason = "".join(filter(str.isprintable, error.message))[:100]
            return UnreachableError(f"the proxy {_name(proxy)} answered {error.status} {reason}".rstrip())
        case ClientConnectorCertificateError():
            return UnreachableError(f"its certificate is not valid ({_verify_message(error)})")
        case ClientProxyConnectionError() if proxy is not None:
            return UnreachableError(f"the proxy {_name(proxy)}: {_os_reason(error.os_error)}")
        case ClientConnectorError():
            return UnreachableError(_os_reason(error.os_error))
        case ConnectionTimeoutError():
            return UnreachableError("no answer in time")
        case InvalidURL():
            return UnreachableError("its host is not a valid address")
        case _:
            return broken_response(error)


def _name(proxy: URL) -> str:
    """The proxy without its user name and password."""
    return display_url(proxy.origin())


def _verify_message(error: ClientConnectorCertificateError) -> str:
    reason = error.certificate_error
    return reason.verify_message if isinstance(reason, ssl.SSLCertVerificationError) else str(reason)[:100]


def _os_reason(error: OSError) -> str:
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # the event loop's message names only the address
    return error.strerror or str(error) or type(error).__name__


def _tls_context() -> ssl.SSLContext:
    """The system's authorities, or those that the usual variables name. It takes 900 kB and 40 ms: one for all."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
