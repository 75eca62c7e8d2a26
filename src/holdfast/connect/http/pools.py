"""The two connection pools that all remote links of a host share: one is limited to public addresses."""

import io
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
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

from holdfast.connect.http.address_policy import (
    AddressPolicy,
    CheckedResolver,
    LookUp,
    is_ip_literal,
    look_up,
)
from holdfast.connect.http.proxies import NO_PROXIES, Proxies
from holdfast.connect.http.response import (
    BrokenResponseError,
    HttpResponse,
    UnreachableError,
    broken_response,
)
from holdfast.connect.http.response_limits import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    BoundedConnector,
    BoundedProtocol,
)
from holdfast.connect.http.url import display_url
from holdfast.connect.scope import look_up_quota_owner
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_SKIPPED_HEADERS = ("Accept", "Content-Type", "User-Agent")  # aiohttp would add them by default
_MAX_SENT_AT_ONCE = 1024 * 1024  # bytes
_ZONE = re.compile(r"%[^]]*")  # the zone of an IPv6 address, as in `fe80::1%eth0`


class Pool:
    """Sends requests to any number of servers.

    A pool follows no redirects, keeps no cookies, decompresses no responses and sends no request twice. It chooses proxies
    itself, because aiohttp's `trust_env` would also read the user's `.netrc`.

    A pool that is limited to public addresses has an `unrestricted` pool for hosts that may have any address. The limited
    pool uses no proxies, because a proxy resolves the host on its own and could connect to a private address.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        tls: ssl.SSLContext,
        *,
        proxies: Proxies = NO_PROXIES,
        unrestricted: "Pool | None" = None,
        look_up: LookUp = look_up,
    ) -> None:
        self._policy = policy
        self._proxies = proxies
        self._unrestricted = unrestricted
        self._quota_owner = ""
        self._session = ClientSession(
            connector=BoundedConnector(
                resolver=CheckedResolver(policy, look_up), ssl=tls, use_dns_cache=False
            ),
            cookie_jar=DummyCookieJar(),
            skip_auto_headers=_SKIPPED_HEADERS,
            auto_decompress=False,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )

    def for_quota_owner(self, quota_owner: str) -> "Pool":
        """This pool, but its DNS look-ups use the quota of this owner: a session, or a server that sessions share."""
        pool = copy(self)
        pool._quota_owner = quota_owner
        pool._unrestricted = (
            self._unrestricted.for_quota_owner(quota_owner) if self._unrestricted is not None else None
        )
        return pool

    def allowing(self, host: str, port: int) -> "Pool":
        """This pool, but it may also connect to this host and port at any address."""
        pool = copy(self)
        pool._policy = self._policy.allowing(host, port)
        return pool

    async def request(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        connect_seconds: float,
    ) -> HttpResponse:
        """Send a request and wait for the head of the response. The caller closes the response."""
        host, port = url.raw_host or "", url.port or 0
        if self._unrestricted is not None and self._policy.allows_any_address(host, port):
            return await self._unrestricted.request(
                method, url, headers=headers, body=body, connect_seconds=connect_seconds
            )
        if is_ip_literal(host):
            self._policy.select(host, port, [host])
        proxy = self._proxies.find(url)
        look_up_quota_owner.set(self._quota_owner)
        try:
            response = await self._session.request(
                method,
                url,
                headers=_build_headers(url, headers),
                data=_payload(body),
                allow_redirects=False,
                proxy=proxy,
                timeout=_connect_timeout(connect_seconds),
                middlewares=() if method == "POST" else _NO_RETRY,  # aiohttp never retries a POST
            )
        except ClientError as error:
            raise _translate_error(error, proxy) from None
        except (ValueError, UnicodeError):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                'A header contains a control character or invalid Unicode. Correct "headers" in the entry of the server.',
            ) from None
        connection = response.connection.protocol if response.connection is not None else None
        return HttpResponse(response, connection if isinstance(connection, BoundedProtocol) else None)

    async def close(self) -> None:
        await self._session.close()


class Pools:
    """A pool that is limited to public addresses, and one that connects to any address."""

    def __init__(self, reachable: tuple[str, ...]) -> None:
        self._tls = _tls_context()  # shared, because each context takes much memory
        self._proxies = Proxies()
        self._reachable = reachable

    async def __aenter__(self) -> Self:
        policy = AddressPolicy(public_only=True, reachable=self._reachable)
        self._unrestricted = Pool(AddressPolicy(public_only=False), self._tls, proxies=self._proxies)
        self._public_only = Pool(policy, self._tls, unrestricted=self._unrestricted)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._unrestricted.close()
        await self._public_only.close()

    def pool(self, *, public_only: bool, quota_owner: str) -> Pool:
        """The pool for requests to a link's own server."""
        return (self._public_only if public_only else self._unrestricted).for_quota_owner(quota_owner)

    def pool_chooser(self, server_url: URL, *, public_only: bool, quota_owner: str) -> Callable[[URL], Pool]:
        """A function that chooses the pool for an address that a server refers to.

        Addresses on the server's host use the server's own pool. All others must be public.
        """
        server_pool = self.pool(public_only=public_only, quota_owner=quota_owner)
        other_pool = self.pool(public_only=True, quota_owner=quota_owner)
        return lambda url: server_pool if url.raw_host == server_url.raw_host else other_pool


async def _send_once(
    request: ClientRequest, handler: Callable[[ClientRequest], Awaitable[ClientResponse]]
) -> ClientResponse:
    """Keep aiohttp from retrying a GET or DELETE, because its token is valid for one request only."""
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise broken_response(error) from None


_NO_RETRY = (_send_once,)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """The body for aiohttp. A long body is a file object, which aiohttp writes piece by piece."""
    return io.BytesIO(body) if body is not None and len(body) > _MAX_SENT_AT_ONCE else body


@lru_cache(maxsize=64)
def _connect_timeout(connect_seconds: float) -> ClientTimeout:
    """A timeout for connecting only."""
    return ClientTimeout(total=None, connect=connect_seconds, sock_connect=None, sock_read=None)


def _build_headers(url: URL, headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers to send. Raise UnicodeError for a lone surrogate, which aiohttp would send."""
    all_headers = {"Accept-Encoding": "identity", **headers}
    "".join(all_headers.values()).encode()
    if "%" in (url.raw_host or ""):
        all_headers["Host"] = _host_header(url)
    return all_headers


def _host_header(url: URL) -> str:
    return _ZONE.sub("", url.host_port_subcomponent or "")


def _translate_error(error: ClientError, proxy: URL | None) -> UnreachableError | BrokenResponseError:
    """Translate an error of aiohttp. The message completes a sentence such as `https://example.org/mcp cannot be reached:`."""
    match error:
        case ClientHttpProxyError():
            assert proxy is not None
            reason = "".join(filter(str.isprintable, error.message))[:100]
            return UnreachableError(
                f"the proxy {_display_proxy(proxy)} answered {error.status} {reason}".rstrip()
            )
        case ClientConnectorCertificateError():
            return UnreachableError(f"its certificate is not valid ({_verify_message(error)})")
        case ClientProxyConnectionError() if proxy is not None:
            return UnreachableError(f"the proxy {_display_proxy(proxy)} failed: {_os_reason(error.os_error)}")
        case ClientConnectorError():
            return UnreachableError(_os_reason(error.os_error))
        case ConnectionTimeoutError():
            return UnreachableError("no answer in time")
        case InvalidURL():
            return UnreachableError("its host is not a valid address")
        case _:
            return broken_response(error)


def _display_proxy(proxy: URL) -> str:
    return display_url(proxy.origin())


def _verify_message(error: ClientConnectorCertificateError) -> str:
    reason = error.certificate_error
    return reason.verify_message if isinstance(reason, ssl.SSLCertVerificationError) else str(reason)[:100]


def _os_reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return _tls_reason(error)
    if isinstance(error, ConnectionError):
        # The event loop sets `strerror` to a string with nothing but the address.
        return os.strerror(error.errno) if error.errno else "it closed the connection"
    return error.strerror or str(error) or type(error).__name__


def _tls_reason(error: ssl.SSLError) -> str:
    match error.reason:
        case "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE":
            why = "it does not speak TLS at this port. If it has no TLS, its address begins with http://"
        case "UNSUPPORTED_PROTOCOL" | "TLSV1_ALERT_PROTOCOL_VERSION":
            why = "it supports neither TLS 1.2 nor 1.3"
        case reason:
            why = (reason or "unknown reason").replace("_", " ").lower()
    return f"TLS failed: {why}"


def _tls_context() -> ssl.SSLContext:
    """A context with the system's certificate authorities, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
