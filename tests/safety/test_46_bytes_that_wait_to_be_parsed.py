"""Attack 46: a client sends bytes faster than they are parsed, so that the bytes that wait fill the memory."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from holdfast.toolkit import http_server
from holdfast.toolkit.http_server import BoundedConnection, ConnectionLimits
from holdfast.wire.http import HttpLimits
from holdfast.wire.loop_throttle import LoopThrottle
from tests.safety.test_46_crowding_an_http_server import HEAD, serve, until
from tests.wire.test_http import modern

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-12")]

CONNECTIONS, BODY, RECEIVED = 8, 4 * 1024 * 1024, 16 * 1024
CHUNKS = b"1\r\na\r\n" * 50_000


def refused_body() -> bytes:
    """A request for a host that this server does not have: its head is refused, and its body is discarded."""
    return (
        HEAD.replace("localhost", "evil").encode() + f"Content-Length: {BODY}\r\n\r\n".encode() + b"A" * BODY
    )


def chunked_body() -> bytes:
    return HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS


def next_requests() -> bytes:
    """A request that is not answered yet, and the body of the next one."""
    body, headers = modern("wait")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    first = f"{HEAD}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return first + f"{HEAD}Content-Length: {BODY}\r\n\r\n".encode() + b"A" * BODY


FLOODS = {"refused body": refused_body, "chunked body": chunked_body, "behind a request": next_requests}


class Observed(BoundedConnection):
    """Tells how many bytes of a connection waited to be parsed, or waited in uvicorn for the application."""

    most: ClassVar[int]
    paused: ClassVar[set[BoundedConnection]]
    """The connections on which uvicorn has paused reading at least once."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.observe()

    def set_paused_by_uvicorn(self, *, is_paused: bool) -> None:
        self.paused.add(self)
        super().set_paused_by_uvicorn(is_paused=is_paused)

    def observe(self) -> None:
        cycle = self._protocol.cycle
        waiting = len(self._unparsed) + (len(cycle.body) if cycle else 0)
        Observed.most = max(Observed.most, waiting)


class PausedByTwo(Observed):
    """What uvicorn says about reading is done at once, also while bytes wait to be parsed."""

    def set_paused_by_uvicorn(self, *, is_paused: bool) -> None:
        self.paused.add(self)
        (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def buffer_updated(self, nbytes: int) -> None:
        if self._parse_waits_in is not None:
            self._unparsed += self._connections.received[:nbytes]
            self.observe()
        else:
            super().buffer_updated(nbytes)


class NeverPaused(Observed):
    """The transport goes on although it was told to pause."""

    def _update_reading(self) -> None:
        pass


async def send(port: int, sent: bytes) -> None:
    """Send these bytes as fast as the server takes them, until it has them all or closes the connection."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection, suppress(ConnectionError):
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        await loop.sock_sendall(connection, sent)


async def bytes_that_wait(kind: type[Observed], sent: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Send these bytes on several connections. Return how many waited on one of them."""
    Observed.most, Observed.paused = 0, set()
    monkeypatch.setattr(http_server, "BoundedConnection", kind)
    async with serve(HttpLimits()) as (port, app):
        echo: Any = app._service  # pyright: ignore[reportPrivateUsage]
        sending = asyncio.gather(*(send(port, sent) for _ in range(CONNECTIONS)))
        await until(lambda: sending.done() or len(Observed.paused) == CONNECTIONS)
        echo.release.set()  # answer the requests that others follow
        async with asyncio.timeout(20):
            await sending
    return Observed.most


@pytest.mark.parametrize("name", FLOODS)
async def test_nothing_is_received_while_bytes_wait(name: str, monkeypatch: pytest.MonkeyPatch):
    most = await bytes_that_wait(Observed, FLOODS[name](), monkeypatch)

    assert 0 < most <= 6 * RECEIVED  # uvicorn pauses at 64 KiB


async def test_transport_that_does_not_pause_is_closed(monkeypatch: pytest.MonkeyPatch):
    assert await bytes_that_wait(NeverPaused, refused_body(), monkeypatch) <= 6 * RECEIVED


async def test_control_if_uvicorn_resumes_reading_the_bytes_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "_RECEIVED_BYTES", 256 * 1024)  # as asyncio does
    assert await bytes_that_wait(PausedByTwo, refused_body() * 4, monkeypatch) > 20 * RECEIVED


class InDebt(BoundedConnection):
    """A connection whose address has used up its time, so that its bytes wait."""

    waiting: ClassVar[LoopThrottle]
    seen: ClassVar[int]

    def buffer_updated(self, nbytes: int) -> None:
        self.throttle.charge(1)
        super().buffer_updated(nbytes)
        InDebt.waiting = self.throttle
        InDebt.seen += 1


async def parses_that_wait(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many connections an address keeps in memory, if it opens more than the server allows and each sends bytes."""
    InDebt.seen = 0
    monkeypatch.setattr(http_server, "BoundedConnection", InDebt)
    async with serve(HttpLimits(), ConnectionLimits(connections=10)) as (port, _):
        writers: list[asyncio.StreamWriter] = []
        for number in range(1, 31):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD.encode())
            writers.append(writer)
            await until(lambda number=number: InDebt.seen == number)
        waiting = len(InDebt.waiting._waiting or ())
        for writer in writers:
            writer.close()
    return waiting


def keep_turn(self: LoopThrottle, function: Callable[[], None]) -> None:
    pass


async def test_closed_connections_wait_for_no_turn(monkeypatch: pytest.MonkeyPatch):
    found = await parses_that_wait(monkeypatch)
    monkeypatch.setattr(LoopThrottle, "forget_turn", keep_turn)
    control = await parses_that_wait(monkeypatch)

    assert (found, control) == (10, 30)
