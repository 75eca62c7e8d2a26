"""Attack 64: one client holds the connections of the server, or one program of this machine poses as many addresses."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast.toolkit import http_server
from holdfast.toolkit.http_server import BoundedConnection, ConnectionLimits, Connections, bind, serve_app
from holdfast.wire.http.connection import connection_of
from holdfast.wire.loop_throttle import LoopThrottle

pytestmark = pytest.mark.anyio

FEW = ConnectionLimits(connections=20)


class Waiting:
    """An application whose requests wait until the end. The path of a request names its caller; `/free` is answered at once."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.waiting = 0
        self.changed = asyncio.Condition()
        self._callers: dict[str, LoopThrottle] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        connection = connection_of(scope)
        assert connection is not None
        connection.throttle = self._callers.setdefault(scope["path"], LoopThrottle())
        connection.request_received()
        if scope["path"] != "/free":
            async with self.changed:
                self.waiting += 1
                self.changed.notify_all()
            await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def wait_for(self, number: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.waiting >= number)


@asynccontextmanager
async def serve(address: str = "127.0.0.1") -> AsyncIterator[tuple[int, Waiting]]:
    app, sock = Waiting(), bind(address, 0)
    async with asyncio.timeout(60), serve_app(app, sock, FEW):
        yield sock.getsockname()[1], app
        app.end.set()


async def request(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader, writer


async def answers(port: int, number: int) -> list[str]:
    """The first lines of the answers to as many requests of others, each on a connection of its own."""
    lines: list[str] = []
    for _ in range(number):
        reader, writer = await request(port, "/free")
        try:
            lines.append((await reader.readline()).decode())
        except ConnectionError:
            lines.append("")
        await close(writer)
    return lines


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def hold_always(self: Connections, connection: BoundedConnection) -> None:
    self._waiting.pop(connection, None)  # pyright: ignore[reportPrivateUsage]


async def answers_while_one_client_holds_connections() -> list[str]:
    async with serve() as (port, app):
        held = [await request(port, "/flood") for _ in range(FEW.connections)]
        await app.wait_for(FEW.connections)
        found = await answers(port, 3)
        await close(*(writer for _, writer in held))
    return found


async def test_one_client_cannot_hold_all_connections(monkeypatch: pytest.MonkeyPatch):
    found = await answers_while_one_client_holds_connections()
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "protect", hold_always)
        control = await answers_while_one_client_holds_connections()

    assert found == ["HTTP/1.1 200 OK\r\n"] * 3
    assert control == [""] * 3


async def test_each_client_can_hold_as_many_connections_as_are_free():
    async with serve() as (port, app):
        held: list[Any] = []
        for name in ("/ann", "/bob"):
            held += [await request(port, name) for _ in range(FEW.connections // 4)]
        await app.wait_for(len(held))
        found = await answers(port, 2 * FEW.connections)
        app.end.set()
        kept = [await reader.readline() for reader, _ in held]
        await close(*(writer for _, writer in held))

    assert (set(found), set(kept)) == ({"HTTP/1.1 200 OK\r\n"}, {b"HTTP/1.1 200 OK\r\n"})


def find_by_client(self: Connections, client: Any, server: Any) -> BoundedConnection | None:
    return self._open.get((client, ("", 0)))  # pyright: ignore[reportPrivateUsage]


def connect_from_one_port(port: int, number: int) -> list[socket.socket]:
    """Connections from one port to several addresses of the server."""
    connections: list[socket.socket] = []
    source = ("127.0.0.1", 0)
    for address in range(1, number + 1):
        connection = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            connection.setsockopt(socket.SOL_SOCKET, option, 1)
        connection.bind(source)
        connection.connect((f"127.0.0.{address}", port))
        source = connection.getsockname()
        connections.append(connection)
    return connections


async def test_connections_from_one_port_to_several_addresses_are_counted(monkeypatch: pytest.MonkeyPatch):
    counts: list[int] = []
    added = Connections.add

    def count(self: Connections, connection: BoundedConnection) -> None:
        added(self, connection)
        counts.append(len(self._open))  # pyright: ignore[reportPrivateUsage]

    def forget_the_server(self: Connections, connection: BoundedConnection) -> None:
        connection.addresses = connection.addresses[0], ("", 0)
        count(self, connection)

    async def highest_count() -> int:
        counts.clear()
        async with serve("0.0.0.0") as (port, _):
            connections = connect_from_one_port(port, 10)
            await answers(port, 1)
            for connection in connections:
                connection.close()
        return max(counts)

    monkeypatch.setattr(Connections, "add", count)
    found = await highest_count()
    monkeypatch.setattr(Connections, "add", forget_the_server)
    monkeypatch.setattr(Connections, "find", find_by_client)
    control = await highest_count()

    assert (found, control) == (11, 2)


async def throttles_of_many_addresses(port: int) -> None:
    """Send a request from each of several addresses of loopback."""
    for number in range(1, 9):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{number}", 0))
        writer.write(b"GET /free HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        await close(writer)


async def test_all_addresses_of_this_machine_share_one_part_of_the_time(monkeypatch: pytest.MonkeyPatch):
    used: set[LoopThrottle] = set()
    made = BoundedConnection.connection_made

    def note(self: BoundedConnection, transport: Any) -> None:
        made(self, transport)
        used.add(self.throttle)

    monkeypatch.setattr(BoundedConnection, "connection_made", note)
    async with serve() as (port, _):
        await throttles_of_many_addresses(port)
    found = len(used)
    used.clear()
    monkeypatch.setattr(http_server, "_network_of", str)
    async with serve() as (port, _):
        await throttles_of_many_addresses(port)

    assert (found, len(used)) == (1, 8)


SERVER_WITH_FEW_FILES = """
import asyncio, resource, sys
from contextlib import ExitStack

from holdfast.toolkit import http_server

NUMBER = 80
resource.setrlimit(resource.RLIMIT_NOFILE, (NUMBER, NUMBER))
if sys.argv[1] == "control":
    http_server._max_connections = lambda: http_server.MAX_CONNECTIONS
add = http_server.Connections.add

async def main():
    flooded, accepted = asyncio.Event(), 0

    def count(self, connection):
        nonlocal accepted
        add(self, connection)
        accepted += 1
        if accepted == NUMBER:
            flooded.set()

    http_server.Connections.add = count
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: flooded.set())  # `accept` failed
    sock = http_server.bind("127.0.0.1", 0)
    async with http_server.serve_app(None, sock):
        print(sock.getsockname()[1], flush=True)
        await flooded.wait()
        found = ""
        for _ in range(20):  # connections over the limit are closed in later iterations of the event loop
            try:
                with ExitStack() as stack:
                    for _ in range(NUMBER // 8):
                        stack.enter_context(open("/dev/null"))
                found = "opened"
                break
            except OSError as error:
                found = error.strerror
                await asyncio.sleep(0.05)
        print(found, flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


async def open_files_during_a_flood(way: str) -> str:
    """What a server can do that may open 80 files, when a client has opened 80 connections."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER_WITH_FEW_FILES, way, stdin=PIPE, stdout=PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    flood = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(80)]
    found = (await server.stdout.readline()).decode().strip()
    await close(server.stdin, *flood)
    await server.wait()
    return found


async def test_idle_connections_leave_files_for_servers_and_the_store():
    async with asyncio.timeout(60):
        assert await open_files_during_a_flood("protected") == "opened"
        assert await open_files_during_a_flood("control") == "Too many open files"
