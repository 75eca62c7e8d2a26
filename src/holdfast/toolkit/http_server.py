"""Serve an ASGI application with uvicorn, and limit connections, unfinished heads, unread answers and parsing time.

uvicorn itself waits without a limit for the head of a request (its first line and its headers), and for clients to read
their answers. `BoundedConnection` wraps uvicorn's protocol object of each connection, and passes on the events of asyncio. A
head is complete when uvicorn calls the application.
"""

import asyncio
import ipaddress
import logging
import re
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.unread_answers import UnreadAnswers
from holdfast.wire.http.connection import CONNECTION_EXTENSION
from holdfast.wire.http.response import JSON_HEADER
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.task_turns import TaskTurns, current_turns, run_in_turns

HEAD_SECONDS = 10.0
WRITE_SECONDS = 30.0
_CROWDED_WRITE_SECONDS = 2.0
_UNREAD_BYTES = 32 * 1024 * 1024
HEAD_BYTES = 64 * 1024
MAX_HEAD_LINES = 600  # each line takes time to parse, however short it is
MAX_CONNECTIONS = 4096
_SHUTDOWN_SECONDS = 3  # how long uvicorn waits for open connections when the server stops
_RECEIVED_BYTES = 16 * 1024  # received at once from one connection, and parsed before more is received
_PIECE_BYTES = 4 * 1024  # parsed at once: up to a millisecond of work
_SLICE_SECONDS = 0.001  # how long to parse before the event loop does other work
MAX_PIPELINED = 16
"""How many requests a client may send on one connection before it gets the answer to the first one."""
# The parsing time that an address may use at once before its connections are read more slowly.
_BURST_SECONDS = 0.02
_REFUSAL_SECONDS = 0.0003  # about the time that it takes to refuse a request
_REFUSED_BYTES = 16 * 1024  # how much of a refused request is parsed; more is discarded
_DISCARD_SECONDS = 1e-5  # about the time to receive `_RECEIVED_BYTES` that are discarded
_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 16  # connections, before the event loop does other work
_MAX_NETWORKS = 1024  # networks whose parsing time is remembered
_LOOPBACK = "127.0.0.0/8"

Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server's connections."""

    head_seconds: float = HEAD_SECONDS
    """How long a client may take to send the head of a request."""
    write_seconds: float = WRITE_SECONDS
    """How long a client may leave an answer unread."""
    crowded_write_seconds: float = _CROWDED_WRITE_SECONDS
    """The same limit, if all unread answers of the caller have more than `unread_bytes` together."""
    unread_bytes: int = _UNREAD_BYTES
    connections: int = MAX_CONNECTIONS
    """How many may be open at the same time."""


class Connections:
    """The open connections of a server.

    When there are too many, the connection that has waited longest for a complete request from a known caller is closed; if none
    waits, the new one. A connection with such a request is protected: it is not closed for this reason. A caller may protect another
    connection only while more connections are unprotected or free than it protects, so that no caller can protect all of them.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.received = memoryview(bytearray(_RECEIVED_BYTES))
        """What a connection has just received. All connections share it, because each copies its bytes out of it at once."""
        self._throttles: dict[str, LoopThrottle] = {}  # by network; the most recently used is last
        self._open: dict[tuple[Address, Address], BoundedConnection] = {}
        self._waiting: dict[BoundedConnection, None] = {}  # the connection that has waited longest is first
        self._protected: dict[BoundedConnection, LoopThrottle] = {}
        """The connections that are not closed to make room for new ones, each with the throttle of its caller."""
        self._protected_by_caller: Counter[LoopThrottle] = Counter()
        self.unread = UnreadAnswers(limits.unread_bytes, limits.crowded_write_seconds)
        """Closes connections of callers that leave too many bytes unread."""

    def add(self, connection: "BoundedConnection") -> None:
        if len(self._open) >= self.limits.connections:
            next(iter(self._waiting), connection).abort()
        self._open[connection.addresses] = connection
        self._waiting[connection] = None

    def remove(self, connection: "BoundedConnection") -> None:
        self._waiting.pop(connection, None)
        self._unprotect(connection)
        if self._open.get(connection.addresses) is connection:
            del self._open[connection.addresses]

    def throttle_of(self, address: str) -> LoopThrottle:
        """The throttle for the parsing time of connections whose caller is not known: one per address, or per IPv6 network."""
        network = _network_of(address)
        throttle = self._throttles.pop(network, None) or LoopThrottle(
            f"address {network}", burst_seconds=_BURST_SECONDS
        )
        self._throttles[network] = throttle
        if len(self._throttles) > _MAX_NETWORKS:
            del self._throttles[next(iter(self._throttles))]
        return throttle

    def find(self, client: Address, server: Address) -> "BoundedConnection | None":
        """The connection between these addresses. A client may use one port for connections to several addresses of the server."""
        return self._open.get((client, server))

    def set_waiting(self, connection: "BoundedConnection") -> None:
        """Mark the connection as waiting for a complete request: it may be closed to make room for a new one."""
        if self._open.get(connection.addresses) is connection:
            self._unprotect(connection)
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def protect(self, connection: "BoundedConnection") -> None:
        """Protect a connection that has a complete request from a known caller, if the caller may protect another one."""
        caller = connection.throttle
        is_waiting = connection in self._waiting
        if is_waiting and self._protected_by_caller[caller] < self.limits.connections - len(self._protected):
            del self._waiting[connection]
            self._protected[connection] = caller
            self._protected_by_caller[caller] += 1

    def _unprotect(self, connection: "BoundedConnection") -> None:
        if (caller := self._protected.pop(connection, None)) is not None:
            self._protected_by_caller[caller] -= 1
            if not self._protected_by_caller[caller]:
                del self._protected_by_caller[caller]


class BoundedConnection(asyncio.BufferedProtocol):
    """Wraps uvicorn's protocol of one connection, and aborts the connection if it exceeds a limit.

    Nothing is received while received bytes wait to be parsed, so at most `_RECEIVED_BYTES` of a connection wait.

    A limit is exceeded if

    * a head takes too long, is too large or has too many lines;
    * the client leaves an answer unread for too long; the limit is shorter if the unread answers of its caller have many bytes;
    * the client sends too many requests before the first one is answered.

    If parsing the requests of a caller takes long, the caller's connections are read more slowly, in turn.
    """

    def __init__(self, protocol: "_HttpProtocol", connections: Connections) -> None:
        self.addresses: tuple[Address, Address] = ("", 0), ("", 0)
        """The addresses of the client and of the server."""
        self._protocol = protocol
        self._connections = connections
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread_caller: LoopThrottle | None = None
        """While an answer is unread: the throttle of the caller, as it was when the client stopped reading."""
        self._head_size = 0
        self._head_lines = 0
        self._last_bytes = b""  # the end of the previous piece, to find the end of the head across pieces
        self._running = 0  # requests that the application is answering
        self._started = 0  # requests that the application has begun to answer
        self._has_new_bytes = False  # whether bytes arrived since the last request began
        self._unparsed = b""
        self._parse_waits_in: LoopThrottle | None = None  # the throttle whose turn the next parse waits for
        self._is_reading = True
        self._is_paused_by_uvicorn = False
        self.throttle = connections.throttle_of("")
        """Limits the time to parse this connection. All connections of one caller have the same throttle."""
        self._throttle_of_turns = self.throttle  # the throttle that `_turns` belongs to
        self._turns = self.throttle.task_turns  # kept, because it is read several times for each request
        self._is_new = True  # whether nothing was parsed yet
        self._parse_budget = -1  # how many more bytes of a refused request are parsed; -1 means no limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the head timer at once, because a client may connect and send nothing."""
        self._transport = cast("asyncio.Transport", transport)
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if client and server:
            self.addresses = (str(client[0]), int(client[1])), (str(server[0]), int(server[1]))
            self.throttle = self._connections.throttle_of(self.addresses[0][0])
        self._start_head_timer()
        self._protocol.connection_made(_UvicornTransport(self._transport, self))
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        self._unparsed = b""
        if self._parse_waits_in is not None:
            self._parse_waits_in.forget_turn(self._parse)
        self._connections.remove(self)
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where asyncio puts the bytes that it receives."""
        return self._connections.received

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes in pieces. While pieces wait, nothing is received."""
        if self._parse_waits_in is not None:  # the transport did not pause
            self.abort()
            return
        if self._parse_budget == 0:
            self.throttle.charge(_DISCARD_SECONDS)
        else:
            self._unparsed = bytes(self._connections.received[:nbytes])
        started = monotonic()
        # `free_at` is compared first because that is cheaper than the call of `must_wait`.
        is_late = self.throttle.free_at > started and self.throttle.must_wait(started)
        if is_late or self.find_turns().must_wait():
            self._wait_turn()
        else:
            self._parse()

    def set_paused_by_uvicorn(self, *, is_paused: bool) -> None:
        """Called when uvicorn wants to receive nothing, or to receive again. If pieces wait, they are parsed first."""
        self._is_paused_by_uvicorn = is_paused
        self._update_reading()

    def _update_reading(self) -> None:
        """Receive only if no bytes wait to be parsed and uvicorn wants more. Nothing else pauses or resumes the transport."""
        is_reading = self._parse_waits_in is None and not self._is_paused_by_uvicorn
        if is_reading == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _wait_turn(self) -> None:
        self._parse_waits_in = self.throttle
        self._update_reading()
        # The first request on a connection does not wait behind connections that send much.
        self.throttle.call_in_turn(self._parse, first=self._is_new)

    def _parse(self) -> None:
        self._parse_waits_in, self._is_new = None, False
        started = monotonic()
        while self._unparsed and not self._transport.is_closing():
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            self._parse_piece(piece)
            # After a piece of a head, let the application start: the rest may be a body.
            if not self._running or monotonic() - started > _SLICE_SECONDS:
                break
        self.find_turns().charge(monotonic() - started)
        must_pause = self.throttle.charge_since(started) and self.throttle.begin_pause() > 0
        if self._transport.is_closing():
            return
        if self._unparsed or must_pause:
            self._wait_turn()
        else:
            self._update_reading()

    def _parse_piece(self, piece: bytes) -> None:
        """Parse one piece. If it belongs to a head, count its bytes and lines."""
        if self._parse_budget >= 0:
            piece = piece[: self._parse_budget]
            self._parse_budget -= len(piece)
            if not self._parse_budget:
                self._unparsed = b""
        protocol = self._protocol
        if self._running:
            self._has_new_bytes = True
        # While the application runs, the next head may follow the body.
        if not self._running or not protocol.is_head_complete:
            self._head_size += len(piece)
            self._head_lines += self._count_lines(piece)
            if self._head_size > HEAD_BYTES + _PIECE_BYTES or self._head_lines > MAX_HEAD_LINES:
                self.abort()
                return
        heads = protocol.heads
        protocol.data_received(piece)
        if protocol.heads != heads:
            self._forget_head()
        if len(protocol.pipeline) > MAX_PIPELINED:
            self.abort()
        elif not self._running and self._head_timer is None and protocol.heads == self._started:
            self._start_head_timer()  # the head is not complete yet

    def _count_lines(self, piece: bytes) -> int:
        """Return how many lines of the head end in this piece, and keep the end of the piece. The piece may also contain a part of the body."""
        text = self._last_bytes + piece
        self._last_bytes = text[-3:]
        end = text.find(b"\r\n\r\n")
        return text.count(b"\n", 0, end if end >= 0 else len(text))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Start the write timer: the client does not read what is sent to it."""
        if self._write_timer is None:
            seconds = self._connections.limits.write_seconds
            self._write_timer = asyncio.get_running_loop().call_later(seconds, self.abort)
            self._unread_caller = self.throttle
            self._connections.unread.add(self, self._unread_caller)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        self._protocol.resume_writing()

    @property
    def unread_bytes(self) -> int:
        """How many bytes of answers wait until the client reads."""
        return self._transport.get_write_buffer_size()

    def find_turns(self) -> TaskTurns:
        """The turns of the tasks that answer the requests on this connection. If the caller is known, all of its connections share them."""
        throttle = self.throttle
        if throttle is not self._throttle_of_turns:
            self._throttle_of_turns, self._turns = throttle, throttle.task_turns
        return self._turns

    def request_started(self) -> None:
        """Stop the head timer: the head is complete. The application has its own deadline for the body."""
        self._running += 1
        self._started += 1
        self._has_new_bytes = False
        self._stop_head_timer()

    def request_refused(self, *, is_chunked: bool) -> None:
        """If the body is chunked, parse only the first bytes of it, and then close the connection.

        Parsing small chunks costs the server far more time than sending them costs the client. The other bytes are received
        and discarded, because the client may read the answer only after it has sent its whole body.
        """
        if is_chunked:
            self._parse_budget = _REFUSED_BYTES
        self.throttle.charge(_REFUSAL_SECONDS)

    def request_received(self) -> None:
        """Protect this connection if its caller may protect another one: the application has a complete request from a known caller."""
        self._connections.protect(self)

    def request_finished(self) -> None:
        """Start the head timer if a part of the next request may have arrived already."""
        self._running -= 1
        if self._parse_budget == 0:
            self._transport.close()
        self._parse_budget = -1
        if not self._running:
            self._connections.set_waiting(self)
            if self._has_new_bytes and not self._transport.is_closing():
                self._start_head_timer()

    def abort(self) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        self._connections.remove(self)
        self._transport.abort()

    def _start_head_timer(self) -> None:
        seconds = self._connections.limits.head_seconds
        self._head_timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _forget_head(self) -> None:
        """Count the bytes and lines of the next head from now on."""
        self._head_size = self._head_lines = 0
        self._last_bytes = b""

    def _stop_head_timer(self) -> None:
        self._forget_head()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self._unread_caller is not None:
            self._connections.unread.remove(self, self._unread_caller)
            self._unread_caller = None


class _UvicornTransport(asyncio.Transport):
    """The transport that uvicorn gets. When uvicorn pauses or resumes reading, the connection decides what that means."""

    def __init__(self, transport: asyncio.Transport, connection: BoundedConnection) -> None:
        super().__init__()
        self._transport = transport
        self._connection = connection

    def pause_reading(self) -> None:
        self._connection.set_paused_by_uvicorn(is_paused=True)

    def resume_reading(self) -> None:
        self._connection.set_paused_by_uvicorn(is_paused=False)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class _HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with protection against hidden requests and headers (request smuggling).

    * Headers after the body (trailers) are answered with 400: uvicorn would add them to the headers before the body.
    * A body with another transfer coding than `chunked` is answered with 400: a proxy might disagree with the parser about where it ends.
    * The connection is closed after the answer to a request for another protocol (`Upgrade`, CONNECT): the parser would read the body of
      such a request as the next request.
    * The host of an absolute request target replaces the header `Host`.
    """

    is_head_complete = False
    """Whether the head of the newest request is complete. Its body follows, or the next request."""
    heads = 0
    """How many heads are complete."""

    def on_message_begin(self) -> None:
        self.is_head_complete = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.is_head_complete = True
        self.heads += 1
        if (authority := _authority(self.url)) is not None:
            host = next((pair for pair in self.headers if pair[0] == b"host"), None)
            if host is not None:
                self.headers.remove(host)  # only one: a request with several is refused
            self.headers.append((b"host", authority))
        super().on_headers_complete()
        if self.parser is not None and self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_head_complete:
            raise ValueError("a header after the head")  # the parser reports it as an error of the request
        # The rest does what uvicorn's own method does, without a call for each header.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError("an unknown coding")  # such as `gzip, chunked`
        self.headers.append((name, value))


def _authority(target: bytes) -> bytes | None:
    """The host that a request target in the absolute form (`http://host/mcp`) names. HTTP prefers it to the header Host."""
    _, separator, rest = target.partition(b"://")
    if not separator or target.startswith(b"/"):
        return None
    return re.split(rb"[/?#]", rest, maxsplit=1)[0]


class _Sender:
    """Sends the response of one request. The head of a JSON response with status 200 is held back, and written together with the body.

    If the application fails before the body, uvicorn answers 500.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._json_head: Any = None  # the head of a JSON response, held back until the body follows

    async def send(self, message: Any) -> None:
        cycle, head = self._cycle, self._json_head
        if cycle.transport.is_closing():
            # Let uvicorn drop what is sent. It sets `disconnected` itself only for the newest of pipelined requests.
            cycle.disconnected = True
        if head is None:
            if message.get("status") == 200 and not cycle.response_started and _is_json_head(message):
                self._json_head = message
            else:
                await cycle.send(message)
            return
        if message["type"] != "http.response.body":
            raise RuntimeError(f"Expected ASGI message 'http.response.body', but got {message['type']!r}.")
        self._json_head = None
        body: bytes = message.get("body", b"")
        if (
            not cycle.keep_alive
            or cycle.scope["method"] == "HEAD"
            or cycle.disconnected
            or cycle.flow.write_paused
            or message.get("more_body")
            or int(head["headers"][1][1]) != len(body)  # the content-length
        ):
            await cycle.send(head)
            await cycle.send(message)
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        defaults = b"".join([b"%b: %b\r\n" % header for header in cycle.default_headers])
        cycle.transport.write(_JSON_RESPONSE % (defaults, len(body), body))
        cycle.message_event.set()
        cycle.on_response()


_JSON_RESPONSE = b"HTTP/1.1 200 OK\r\n%%b%b: %b\r\ncontent-length: %%d\r\n\r\n%%b" % JSON_HEADER


def _is_json_head(message: Any) -> bool:
    headers = message.get("headers", ())
    return len(headers) == 2 and headers[0] == JSON_HEADER and headers[1][0] == b"content-length"


@asynccontextmanager
async def serve_app(
    app: Any, sock: socket.socket, limits: ConnectionLimits | None = None
) -> AsyncIterator[None]:
    """Serve the application on a bound socket while the block runs."""
    connections = Connections(limits or ConnectionLimits(connections=_max_connections()))

    async def bounded_app(scope: Any, receive: Any, send: Any) -> None:
        cycle = getattr(send, "__self__", None)  # with uvicorn's trace log, `send` is a function of the log
        if isinstance(cycle, RequestResponseCycle):
            send = _Sender(cycle).send
        connection = connections.find(scope["client"], scope["server"])
        if connection is None:  # the client has disconnected already
            await app(scope, receive, send)
            return
        scope["extensions"] = {CONNECTION_EXTENSION: connection}
        connection.request_started()
        current_turns.set(connection.find_turns)
        try:
            await run_in_turns(app(scope, receive, send), connection.find_turns)
        finally:
            connection.request_finished()

    config = uvicorn.Config(
        bounded_app,
        http="httptools",
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_ACCEPTED_AT_ONCE,  # asyncio accepts this many at once
    )
    config.load()

    def make_protocol(**arguments: Any) -> BoundedConnection:
        return BoundedConnection(_HttpProtocol(**arguments), connections)

    config.http_protocol_class = cast("type[asyncio.Protocol]", make_protocol)
    server = _Server(config)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sock.listen(_BACKLOG)  # clients can connect from here on, before uvicorn has started
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        sock.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the caller of `serve_app`, which ends the streams first, and then leaves the block."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve. Then make the queue of new connections longer again: asyncio has set it to `_ACCEPTED_AT_ONCE`."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_BACKLOG)


def _max_connections() -> int:
    """The maximum number of connections: half of the files that the process may open. The other half is for everything else."""
    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if max_files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max_files // 2)


def _network_of(address: str) -> str:
    """The address, or its network if one client may use the whole network: loopback, or the first 64 bits of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:  # a program on this machine may use 127.0.0.1, 127.0.0.2, …
        return _LOOPBACK
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to this address; port 0 chooses a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"Could not listen on {host}:{port}: {error.strerror}.",
            hint="Choose another host or port, or end the program that uses this one.",
        ) from None
    return sock
