"""Which addresses a remote server may lie at: checked when a connection is made, and connected to as checked."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

import httpcore2
import httpx2

from holdfast.model import codes
from holdfast.model.address import why_inside
from holdfast.model.errors import HoldfastError

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host."""

KEPT = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0)
"""Every link may have a stream open for long, so their number is bounded elsewhere; idle connections are few."""


class Guarded(httpcore2.AsyncNetworkBackend):
    """Connects to addresses out on the internet only, and inside only to hosts that the settings name.

    The name is looked up once, and the connection goes to the address that was looked at: a name that resolves
    to another address a moment later gains nothing.
    """

    def __init__(
        self,
        reachable: Collection[str] = (),
        *,
        resolve: Resolve | None = None,
        backend: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._plain = backend or cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())
        self._reachable = {host.strip("[]").rstrip(".").lower() for host in reachable}
        self._resolve = resolve or _addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Look up, look at, connect."""
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout):
                for address in await self._allowed(host, port):
                    try:
                        return await self._plain.connect_tcp(
                            address, port, timeout, local_address, socket_options
                        )
                    except httpcore2.ConnectError as error:
                        failure = error
        except TimeoutError:
            raise httpcore2.ConnectTimeout("no answer in time") from None
        raise failure or httpcore2.ConnectError(f"{host} has no address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _allowed(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} is not found: {error}") from None
        if {host.rstrip(".").lower(), f"{host.rstrip('.').lower()}:{port}"} & self._reachable:
            return addresses
        why = {address: _why_inside(address) for address in addresses}
        outside = [address for address in addresses if why[address] is None]
        if addresses and not outside:
            raise HoldfastError(
                codes.NOT_REACHABLE,
                f"{host} is at {addresses[0]}, {why[addresses[0]]}, which may not be reached from here. "
                "The host's settings can allow it: servers.reachable.",
            )
        return outside


class Guard(httpx2.AsyncHTTPTransport):
    """The connections that are checked."""

    def __init__(self, backend: Guarded, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls)
        # httpx has no argument for the backend, so its pool, which has opened nothing yet, is replaced.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=KEPT.max_keepalive_connections,
            keepalive_expiry=KEPT.keepalive_expiry,
            network_backend=backend,
        )


@dataclass(frozen=True, slots=True)
class Way:
    """Two pools of connections to the same places.

    A pool looks through all it has at each request, so the streams that stay open for long, one or more for each
    link, are kept apart.
    """

    brief: httpx2.AsyncBaseTransport
    long: httpx2.AsyncBaseTransport

    def for_request(self, request: httpx2.Request) -> httpx2.AsyncBaseTransport:
        """The pool for this request."""
        stays = request.method == "GET" or request.headers.get("mcp-method") == "subscriptions/listen"
        return self.long if stays else self.brief


class Passage(httpx2.AsyncBaseTransport):
    """One link's way out: to its own server's host directly where it may, to every other place past the guard.

    What comes back is bounded and plain: a body over the limit, or a compressed one, is an error.
    """

    def __init__(self, *, direct: Way, guarded: Way, home: str, most_bytes: int) -> None:
        self._direct = direct
        self._guarded = guarded
        self._home = home
        self._most_bytes = most_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it the right way."""
        request.headers["accept-encoding"] = "identity"
        way = self._direct if request.url.host == self._home else self._guarded
        response = await way.for_request(request).handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise HoldfastError(
                codes.BAD_ANSWER, f"{request.url.host} answered in a compressed form unasked."
            )
        if kind_of(response) != EVENTS and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(response.stream, self._most_bytes)
        return response

    async def aclose(self) -> None:
        """Nothing: the connections are the host's."""


EVENTS = "text/event-stream"


def kind_of(response: httpx2.Response) -> str:
    """The type of what a response holds."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def origin_of(url: httpx2.URL) -> str:
    """Scheme, host and port, as one word."""
    return f"{url.scheme}://{url.host}:{url.port or ''}"


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > self._most:
                raise HoldfastError(codes.TOO_LARGE, f"The answer has more than {self._most} bytes.")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


def _why_inside(address: str) -> str | None:
    return why_inside(ipaddress.ip_address(address.partition("%")[0]))


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
