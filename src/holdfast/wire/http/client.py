"""HTTP/1.1 from the side that asks: requests over connections that are kept for the next one.

What is here is what a link needs and no more: no redirects, no compression, no proxies, no HTTP/2.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.exchange import Connection, Reply
from holdfast.wire.http.url import Url

Find: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host that may be connected to, the best one first."""

_NEXT_ADDRESS_SECONDS = 0.25
_KEPT = 64
_KEPT_SECONDS = 60.0


class Unreachable(Exception):
    """No connection could be made."""


def written(method: str, url: Url, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """A request as it goes on the wire; what would end a header's line early is refused."""
    lines = [f"{method} {url.target} HTTP/1.1", f"host: {url.authority}", "accept-encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join((*lines, "", ""))
    if head.count("\r") != len(lines) + 1 or head.count("\n") != len(lines) + 1 or "\0" in head:
        raise HoldfastError(codes.BAD_ARGUMENT, "A header has a line end or a NUL character.")
    try:
        return head.encode() + (body or b"")
    except UnicodeEncodeError:
        raise HoldfastError(codes.BAD_ARGUMENT, "A header has half a character.") from None


class Pool:
    """Connections to any number of servers. Those that are free wait for the next request, for a minute."""

    def __init__(self, find: Find, tls: ssl.SSLContext) -> None:
        self._find = find
        self._tls = tls
        self._free: dict[tuple[str, str, int], list[Connection]] = {}
        self._count = 0
        self._is_closed = False
        self._sweep: asyncio.TimerHandle | None = None

    async def ask(self, url: Url, request: bytes, *, seconds: float) -> Reply:
        """Send a request, head and body; the reply is there as soon as its own head is. Whoever gets it closes it."""
        connection = self._take(url) or await self._connect(url, seconds)
        reply = connection.begin(request)
        try:
            await reply.until_head()
        except BaseException:
            reply.close()
            raise
        return reply

    async def close(self) -> None:
        """Let go of the connections that are free; the others go with their exchanges."""
        self._is_closed = True
        for connection in [one for some in self._free.values() for one in some]:
            connection.hang_up()
        self._free.clear()
        self._count = 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        await asyncio.sleep(0)

    def keep(self, connection: Connection, seconds: float) -> None:
        """An exchange is over; another may follow on its connection, within so many seconds."""
        if self._is_closed or self._count >= _KEPT:
            connection.hang_up()
            return
        loop = asyncio.get_running_loop()
        connection.free_until = loop.time() + min(seconds, _KEPT_SECONDS)
        self._free.setdefault(connection.url.origin, []).append(connection)
        self._count += 1
        if self._sweep is None:
            self._sweep = loop.call_later(_KEPT_SECONDS, self._drop_old)

    def forget(self, connection: Connection) -> None:
        """It is gone, or not free any more."""
        free = self._free.get(connection.url.origin, [])
        if connection in free:
            free.remove(connection)
            self._count -= 1
            if not free:
                del self._free[connection.url.origin]

    def _take(self, url: Url) -> Connection | None:
        while free := self._free.get(url.origin):
            connection = free[-1]
            self.forget(connection)
            if connection.is_quiet():
                return connection
            connection.hang_up()
        return None

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        for connection in [one for some in self._free.values() for one in some]:
            if connection.free_until <= loop.time():
                self.forget(connection)
                connection.hang_up()
        if self._count:
            self._sweep = loop.call_later(_KEPT_SECONDS / 2, self._drop_old)

    async def _connect(self, url: Url, seconds: float) -> Connection:
        async def dial(address: str) -> Connection:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(url, self.keep, self.forget),
                address,
                url.port,
                ssl=self._tls if url.scheme == "https" else None,
                server_hostname=url.host.rstrip(".") if url.scheme == "https" else None,
            )
            return connection

        try:
            async with asyncio.timeout(seconds):
                return await _first(dial, await self._find(url.host, url.port))
        except TimeoutError:
            raise Unreachable("no answer in time") from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(_words(error)) from None


async def _first(dial: Callable[[str], Coroutine[Any, Any, Connection]], addresses: list[str]) -> Connection:
    """The first connection that stands; the next address is tried when one fails or lets us wait."""
    if len(addresses) == 1:
        return await dial(addresses[0])
    waiting = deque(addresses)
    tried: set[asyncio.Task[Connection]] = set()
    winner: Connection | None = None
    failure: BaseException = OSError("it has no address")
    try:
        while winner is None and (waiting or tried):
            if waiting:
                tried.add(asyncio.create_task(dial(waiting.popleft())))
            done, tried = await asyncio.wait(
                tried,
                timeout=_NEXT_ADDRESS_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                error = task.exception()
                if error is not None:
                    failure = error
                elif winner is None:
                    winner = task.result()
                else:
                    task.result().hang_up()
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_hang_up_late)
    if winner is None:
        raise failure
    return winner


def _hang_up_late(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().hang_up()


def _words(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # the loop's own words name the address only
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
