"""Attack 46: callers without a token, or one caller with one, use up what an HTTP server has for all its callers."""

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.model.context import SessionContext
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.token import Signer
from holdfast.toolkit import Call, Toolbox, http_server, round_trips
from holdfast.toolkit.http_server import ConnectionLimits, Connections, bind, serve_app
from holdfast.wire.http import HttpApp, HttpLimits, bodies
from holdfast.wire.http.bodies import Bodies, parse_body
from holdfast.wire.http.messages_to_client import MessagesToClient
from holdfast.wire.http.request import wait_for_disconnect
from holdfast.wire.loop_throttle import LoopThrottle
from tests.safety.server_that_reads_first import SESSIONS
from tests.toolkit.clients import Client, PlainHttpTransport
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.memory_client import MemoryClient, connect
from tests.toolkit.server_process import start_http_server
from tests.toolkit.test_authentication import SigningTransport
from tests.wire.test_http import INITIALIZE, Echo, handshake_message, modern

NOTES, UNPROTECTED = "tests.toolkit.notes_server", "tests.safety.server_that_reads_first"
ANONYMOUS_SESSIONS = 1100
UNFINISHED, SENT = 120, 1_000_000
KEPT = UNFINISHED * SENT * 3 // 4
HEAD = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer(Path(folder) / "keys")
        signer.jwks()
        yield signer


@pytest.fixture(scope="module")
def protected(signer: Signer) -> Iterator[tuple[str, int]]:
    with start_http_server(NOTES, "--keys", str(signer.public_file)) as url_and_pid:
        yield url_and_pid


@pytest.fixture(scope="module")
def unprotected(signer: Signer) -> Iterator[tuple[str, int]]:
    with start_http_server(UNPROTECTED, "--keys", str(signer.public_file)) as url_and_pid:
        yield url_and_pid


def initialize(url: str, times: int) -> list[int]:
    """Send `initialize` without a token so often, on one connection; return the statuses."""
    body = handshake_message("initialize", INITIALIZE)
    with closing(PlainHttpTransport(url)) as anonymous:
        statuses: list[int] = []
        for _ in range(times):
            anonymous.post(body, {})
            statuses.append(anonymous.status)
        return statuses


def call_with_token(url: str, signer: Signer) -> Any:
    """Open a session with a token, and return whether a call in it succeeds."""
    with closing(SigningTransport(url, signer)) as transport:
        return Client(transport, "handshake").call("add_note", {"title": "one"})["ok"]


def test_anonymous_callers_open_no_sessions_at_a_server_with_keys(protected: tuple[str, int], signer: Signer):
    url, _ = protected

    assert set(initialize(url, ANONYMOUS_SESSIONS)) == {401}
    assert call_with_token(url, signer)


def test_anonymous_callers_have_only_their_share_where_they_are_allowed(signer: Signer):
    with start_http_server(NOTES, "--keys", str(signer.public_file), "--allow-anonymous") as (url, _):
        anonymous = initialize(url, 200)

        assert set(anonymous) == {200}  # each ends the oldest that was never used
        assert call_with_token(url, signer)


def test_control_a_server_that_reads_first_has_no_session_left(unprotected: tuple[str, int], signer: Signer):
    url, _ = unprotected
    anonymous = initialize(url, SESSIONS)
    with closing(SigningTransport(url, signer)) as transport:
        refused = transport.request({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})

    assert set(anonymous) == {200}
    assert (
        refused[0]["error"]["message"]
        == f"{SESSIONS} sessions are already open. End one with DELETE, or try again later."
    )


def send_unfinished_bodies(url: str, pid: int, *, expected: int = 0) -> int:
    """Send many bodies without a token and without their end; return by how many bytes the server grew.

    Connections take turns, so wait until the server has grown by the expected number of bytes, or until a deadline.
    """
    address = urlsplit(url)
    initialize(url, 1)  # the first request loads modules
    before, sockets = resident_bytes(pid), list[socket.socket]()
    try:
        for _ in range(UNFINISHED):
            sock = socket.create_connection((address.hostname or "", address.port or 0), timeout=20)
            sockets.append(sock)
            with suppress(ConnectionError):
                sock.sendall(f"{HEAD}Content-Length: {4 * SENT}\r\n\r\n".encode())
                sock.sendall(b"x" * SENT)
        assert initialize(url, 1)[0] in (200, 401, 503)
        deadline = time.monotonic() + 20
        while resident_bytes(pid) - before < expected and time.monotonic() < deadline:
            initialize(url, 1)
        return resident_bytes(pid) - before
    finally:
        for sock in sockets:
            sock.close()


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def test_unfinished_bodies_without_a_token_take_no_memory(
    protected: tuple[str, int], unprotected: tuple[str, int]
):
    growth = send_unfinished_bodies(*protected)
    growth_of_control = send_unfinished_bodies(*unprotected, expected=KEPT)

    assert growth_of_control >= KEPT
    assert growth < KEPT // 2  # the buffers of connections that are being refused


# One caller against the others, over real sockets. The header `authorization` names the caller.


@asynccontextmanager
async def serve(
    http_limits: HttpLimits, connections: ConnectionLimits | None = None
) -> AsyncIterator[tuple[int, HttpApp]]:
    app = HttpApp(Echo(), http_limits=http_limits)
    sock = bind("127.0.0.1", 0)
    async with serve_app(app, sock, connections):
        yield sock.getsockname()[1], app
        app.close()


async def start_body(port: int, owner: str, sent: bytes, length: int) -> tuple[Any, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{HEAD}Authorization: {owner}\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode() + sent)
    await writer.drain()
    return reader, writer


async def post(port: int, owner: str, body: bytes, headers: Mapping[str, str] | None = None) -> str:
    """The status line and the rest of a whole exchange; empty if the server closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    try:
        writer.write(
            f"{HEAD}Authorization: {owner}\r\nConnection: close\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        async with asyncio.timeout(20):
            return (await reader.read()).decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


async def echo(port: int, owner: str, padding: int = 0) -> str:
    body, headers = modern("echo")
    return (await post(port, owner, body + b" " * padding, headers))[9:12]


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


BODIES = HttpLimits(body_bytes=50_000, body_memory=100_000, body_memory_per_caller=60_000)


@pytest.mark.anyio
@pytest.mark.parametrize("owner", ["mallory", ""])
async def test_unfinished_bodies_make_room_for_others(owner: str):
    async with serve(BODIES) as (port, app):
        unfinished = [await start_body(port, owner, b"x" * 20_000, 40_000) for _ in range(20)]
        await until(lambda: app.bodies.memory.used >= 40_000)
        statuses = [await echo(port, other, 30_000) for other in ("ann", "bob", owner)]
        used = app.bodies.memory.used
        for _, writer in unfinished:
            writer.close()
        await until(lambda: app.bodies.memory.used == 0)

    assert (statuses, used <= 100_000) == (["200"] * 3, True)


@pytest.mark.anyio
async def test_control_if_no_body_is_dropped_the_others_are_refused(monkeypatch: pytest.MonkeyPatch):
    def drop_nothing(self: Bodies, reading: Any, amount: int) -> None:
        if not self.memory.try_acquire("", amount):
            from holdfast.model import codes
            from holdfast.model.errors import HoldfastError

            raise HoldfastError(codes.BUSY, "The memory is full.")
        reading.caller_id = ""

    monkeypatch.setattr(Bodies, "reserve_memory", drop_nothing)
    async with serve(BODIES) as (port, app):
        unfinished = [await start_body(port, "", b"x" * 20_000, 40_000) for _ in range(20)]
        await until(lambda: app.bodies.memory.used >= 80_000)
        status = await echo(port, "", 30_000)
        for _, writer in unfinished:
            writer.close()

    assert status == "429"


@pytest.mark.anyio
async def test_slow_body_times_out_and_frees_its_memory():
    limits = HttpLimits(body_seconds=0.2)
    async with serve(limits) as (port, app):
        reader, writer = await start_body(port, "mallory", b"x" * 1000, 2000)
        async with asyncio.timeout(20):
            answer = await reader.readline()
        writer.close()

        assert (answer[:12], app.bodies.memory.used) == (b"HTTP/1.1 504", 0)


@pytest.mark.anyio
async def test_one_callers_running_requests_and_sessions_leave_room_for_others():
    limits = HttpLimits(in_flight=8, in_flight_per_caller=4, sessions=8, sessions_per_caller=4)
    async with serve(limits) as (port, _):
        opened = [await open_and_use(port, "mallory") for _ in range(6)]
        running = [asyncio.ensure_future(post(port, "mallory", *modern("wait"))) for _ in range(20)]
        await until(lambda: sum(task.done() for task in running) == 16)
        others = [await echo(port, "bob"), *[await open_and_use(port, "bob") for _ in range(2)]]
        refused = {task.result()[9:12] for task in running if task.done()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    assert (opened, refused, others) == (["202"] * 4 + ["503"] * 2, {"429"}, ["200", "202", "202"])


async def open_and_use(port: int, owner: str) -> str:
    answer = await post(port, owner, handshake_message("initialize", INITIALIZE))
    session = next((line[16:] for line in answer.splitlines() if line.startswith("mcp-session-id: ")), "")
    if not session:
        return answer[9:12]
    initialized = handshake_message("notifications/initialized", None, None)
    return (await post(port, owner, initialized, {"Mcp-Session-Id": session}))[9:12]


@pytest.mark.anyio
async def test_client_that_reports_too_much_about_itself_opens_no_session():
    greedy: dict[str, Any] = {**INITIALIZE, "capabilities": {"x": [[] for _ in range(3000)]}}
    async with serve(HttpLimits()) as (port, app):
        answer = await post(port, "", handshake_message("initialize", greedy))

        assert (answer[9:12], len(app.sessions)) == ("413", 0)


# Connections


FEW = ConnectionLimits(connections=20)


async def crowd(port: int, sent: bytes, number: int = 60) -> list[asyncio.StreamWriter]:
    writers: list[asyncio.StreamWriter] = []
    for _ in range(number):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writers.append(writer)
    return writers


@pytest.mark.anyio
@pytest.mark.parametrize(
    "sent",
    [b"", HEAD.encode(), f"{HEAD}Content-Length: 100\r\n\r\n".encode()],
    ids=["silent", "unfinished head", "unfinished body"],
)
async def test_connections_that_wait_make_room_for_new_ones(sent: bytes):
    async with serve(HttpLimits(), FEW) as (port, _):
        writers = await crowd(port, sent)

        assert [await echo(port, "ann") for _ in range(3)] == ["200"] * 3
        for writer in writers:
            writer.close()


@pytest.mark.anyio
async def test_running_request_keeps_its_connection():
    async with serve(HttpLimits(), FEW) as (port, app):
        echo_service: Any = app._service  # pyright: ignore[reportPrivateUsage]
        running = asyncio.ensure_future(post(port, "ann", *modern("wait")))
        await echo_service.started.wait()
        writers = await crowd(port, b"")
        await echo(port, "bob")
        echo_service.release.set()

        assert "waited" in await running
        for writer in writers:
            writer.close()


@pytest.mark.anyio
async def test_control_without_making_room_new_connections_are_refused(monkeypatch: pytest.MonkeyPatch):
    added = Connections.add

    def refuse(self: Connections, connection: Any) -> None:
        if len(self._open) >= self.limits.connections:  # pyright: ignore[reportPrivateUsage]
            connection.abort()
        else:
            added(self, connection)

    monkeypatch.setattr(Connections, "add", refuse)
    async with serve(HttpLimits(), FEW) as (port, _):
        writers = await crowd(port, b"")

        assert await echo(port, "ann") == ""
        for writer in writers:
            writer.close()


@pytest.mark.anyio
async def test_client_that_does_not_read_its_answer_is_disconnected():
    ended = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    sock = bind("127.0.0.1", 0)
    limits = ConnectionLimits(write_seconds=0.2)
    async with serve_app(application, sock, limits):
        reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1], limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        async with asyncio.timeout(20):
            await ended.wait()
        writer.close()


# Requests that take long to parse


async def statuses_of(port: int, sent: bytes, count: int = 1) -> list[bytes]:
    """The statuses of the answers to these bytes, until there are `count` of them or the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    with suppress(ConnectionError, TimeoutError):
        writer.write(sent)
        while received.count(b"HTTP/1.1 ") < count and (
            data := await asyncio.wait_for(reader.read(100_000), 20)
        ):
            received += data
    writer.close()
    return [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]]


PIPELINED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.anyio
async def test_client_that_sends_many_requests_at_once_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    async with serve(HttpLimits()) as (port, _):
        few = await statuses_of(port, PIPELINED * 5, 5)
        many = await statuses_of(port, PIPELINED * 1000, 1000)
        monkeypatch.setattr(http_server, "MAX_PIPELINED", 10**6)
        control = await statuses_of(port, PIPELINED * 1000, 1000)
        served = await echo(port, "ann")

    assert (few, len(many) < 100, len(control), served) == ([b"404"] * 5, True, 1000, "200")


@pytest.mark.anyio
async def test_request_with_many_headers_is_not_parsed(monkeypatch: pytest.MonkeyPatch):
    def head(number: int) -> bytes:
        return b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * number + b"\r\n"

    async with serve(HttpLimits()) as (port, _):
        refused = [await statuses_of(port, head(number)) for number in (560, 5000)]
        monkeypatch.setattr(http_server, "MAX_HEAD_LINES", 10**6)
        control: list[bytes] = []
        for _ in range(5):  # the connection may be reset before the answer is read
            control = control or await statuses_of(port, head(5000))

    assert (refused, control) == ([[b"431"], []], [b"431"])


@pytest.mark.anyio
async def test_body_with_many_lines_is_read():
    body, headers = modern("echo")
    async with serve(HttpLimits()) as (port, _):
        answers = [await post(port, "ann", b"\n" * length + body, headers) for length in (2000, 9000)]

    assert [answer[9:12] for answer in answers] == ["200", "200"]


async def parsed_of_refused_body(port: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, int]:
    """Send tiny chunks without an end to a path that is refused. Return the status, and how much was parsed."""
    parsed = 0
    parse = HttpToolsProtocol.data_received

    def count_and_parse(self: HttpToolsProtocol, data: bytes) -> None:
        nonlocal parsed
        parsed += len(data)
        parse(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(HttpToolsProtocol, "data_received", count_and_parse)
        chunks = b"1\r\n \r\n" * 30_000
        sent = b"POST /wrong HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        (status,) = await statuses_of(port, sent)
    return status, parsed


@pytest.mark.anyio
async def test_tiny_chunks_of_a_refused_request_are_not_parsed(monkeypatch: pytest.MonkeyPatch):
    async with serve(HttpLimits(refused_body_seconds=0.3)) as (port, _):
        status, parsed = await parsed_of_refused_body(port, monkeypatch)
        served = await echo(port, "ann")
        monkeypatch.setattr(http_server, "_REFUSED_BYTES", 10**9)
        _, control = await parsed_of_refused_body(port, monkeypatch)

    assert (status, parsed < 30_000, served) == (b"404", True, "200")
    assert control > 60_000


@pytest.mark.anyio
async def test_connections_of_a_caller_share_its_time(monkeypatch: pytest.MonkeyPatch):
    identified: list[tuple[object, LoopThrottle]] = []
    receive = http_server.BoundedConnection.request_received

    def record(self: http_server.BoundedConnection) -> None:
        identified.append((self, self.throttle))
        receive(self)

    monkeypatch.setattr(http_server.BoundedConnection, "request_received", record)
    async with serve(HttpLimits()) as (port, _):
        assert [await echo(port, owner) for owner in ("ann", "ann", "bob")] == ["200"] * 3

    (ann, throttle), (other, same), (_, of_bob) = identified
    assert (ann is not other, throttle is same, of_bob is not same) == (True, True, True)


@pytest.mark.anyio
async def test_connections_without_a_caller_share_the_time_of_their_address(monkeypatch: pytest.MonkeyPatch):
    throttles: dict[str, set[LoopThrottle]] = {}
    start = http_server.BoundedConnection.request_started

    def record(self: http_server.BoundedConnection) -> None:
        throttles.setdefault(self.addresses[0][0], set()).add(self.throttle)
        start(self)

    monkeypatch.setattr(http_server.BoundedConnection, "request_started", record)
    monkeypatch.setattr(http_server, "_network_of", str)  # as if these were not addresses of one machine
    async with serve(HttpLimits()) as (port, _):
        for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writer.write(PIPELINED)
            assert (await reader.readline()).startswith(b"HTTP/1.1 404")
            writer.close()

    (first,), (second,) = throttles["127.0.0.1"], throttles["127.0.0.2"]
    assert first is not second


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", "127.0.0.0/8"),
        ("127.8.9.10", "127.0.0.0/8"),
        ("::1", "127.0.0.0/8"),
        ("", ""),
    ],
)
def test_addresses_that_one_client_can_use_share_a_throttle(address: str, network: str):
    assert http_server._network_of(address) == network  # pyright: ignore[reportPrivateUsage]


def test_number_of_addresses_that_are_remembered_is_limited():
    connections = Connections(FEW)
    throttles = [connections.throttle_of(f"10.0.{number // 256}.{number % 256}") for number in range(2000)]

    assert len(connections._throttles) == 1024  # pyright: ignore[reportPrivateUsage]
    assert connections.throttle_of("10.0.7.207") is throttles[-1]


@pytest.mark.anyio
@pytest.mark.parametrize("is_charged", [True, False])
async def test_bodies_of_many_values_are_parsed_within_the_callers_share(
    is_charged: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_charged:  # the control: all bodies are parsed at once
        monkeypatch.setattr(bodies, "_HANDLING_FACTOR", 0)
    throttle = LoopThrottle()
    body = b'{"jsonrpc":"2.0","method":"x","params":[%b{}]}' % (b"{}," * 20_000)
    parses = [asyncio.create_task(parse_body(body, DEFAULT_LIMITS, throttle)) for _ in range(10)]
    await asyncio.sleep(0)
    done = sum(task.done() for task in parses)
    await asyncio.gather(*parses)

    assert (done < 10) is is_charged


def asking() -> Toolbox:
    box = Toolbox("asking")

    @box.tool()
    async def agree(call: Call, padding: str) -> bool:
        """Ask the user."""
        return await call.ask("Agree?", bool)

    return box


async def count_waiting(client: MemoryClient, session: SessionContext, number: int) -> int:
    """Send calls that ask their client. Return how many of them wait for the answer."""
    waiting = 0
    for _ in range(number):
        params = {"name": "agree", "arguments": {"padding": "x" * 1000}}
        with suppress(Exception):
            waiting += "requestState" in await client.request("tools/call", params, session=session)
    return waiting


@pytest.mark.anyio
async def test_calls_that_wait_for_answers_are_limited_in_bytes(monkeypatch: pytest.MonkeyPatch):
    async with connect(asking(), "modern", answer=lambda method, params: None) as client:
        control = await count_waiting(client, ANN, 10)
    monkeypatch.setattr(round_trips, "MAX_WAITING_BYTES_PER_CALLER", 5000)
    async with connect(asking(), "modern", answer=lambda method, params: None) as client:
        own = await count_waiting(client, ANN, 10)
        others = await count_waiting(client, BOB, 2)
        monkeypatch.setattr(round_trips, "MAX_WAITING_BYTES", 8000)
        of_all = await count_waiting(client, BOB, 2)

    assert (control, 0 < own < 5, others) == (10, True, 2)
    assert of_all < 2


@pytest.mark.anyio
async def test_notifications_for_a_stream_that_is_not_read_are_limited_in_bytes():
    outgoing = MessagesToClient()
    for _ in range(60):
        await outgoing.push("notifications/message", {"data": "x" * 100_000})

    assert 900_000 < sum(map(len, outgoing.take_queued())) <= 1024 * 1024  # of 6 MB
