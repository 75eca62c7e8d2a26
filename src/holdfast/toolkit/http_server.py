"""Serve an ASGI application with uvicorn, and limit what clients can hold: connections, unfinished heads, unread answers.

The time to parse what a client sends is limited, too.

uvicorn itself waits for the head of a request (its line and headers) without a limit, and for clients to read their
answers. `BoundedConnection` wraps uvicorn's protocol of each connection, and uses only the interfaces of asyncio and ASGI:
it forwards every event to uvicorn, and takes a head as complete when uvicorn calls the application.
"""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.app import ACCEPT_EXTENSION
from holdfast.wire.loop_throttle import LoopThrottle

HEAD_SECONDS = 10.0
WRITE_SECONDS = 30.0
HEAD_BYTES = 64 * 1024
MAX_HEAD_LINES = 600
MAX_CONNECTIONS = 4096
_SHUTDOWN_SECONDS = 3
_PIECE_BYTES = 4 * 1024  # parsed at once: up to a millisecond of work
_SLICE_SECONDS = 0.001  # how long pieces are parsed before the event loop does other work
MAX_PIPELINED = 16
"""How many requests a client may send before it has the answer to the first one."""
_BURST_SECONDS = 0.02  # how much parsing a client may cause at once before it is read more slowly
_BACKLOG = 1024
_OTHER_FILES = 128  # files that a server may open besides its connections

Peername: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server's connections."""

    head_seconds: float = HEAD_SECONDS
    """How long a client may take to send the head of a request."""
    write_seconds: float = WRITE_SECONDS
    """How long a client may leave an answer unread."""
    connections: int = MAX_CONNECTIONS


class Connections:
    """The open connections of a server.

    When there are too many, the one that has waited for the longest time for an acceptable request is closed.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[Peername, BoundedConnection] = {}
        self._waiting: dict[BoundedConnection, None] = {}  # longest first

    def add(self, connection: "BoundedConnection") -> None:
        if len(self._open) >= self.limits.connections:
            next(iter(self._waiting), connection).abort()
        self._open[connection.peername] = connection
        self._waiting[connection] = None

    def remove(self, connection: "BoundedConnection") -> None:
        self._waiting.pop(connection, None)
        if self._open.get(connection.peername) is connection:
            del self._open[connection.peername]

    def find(self, peername: Peername) -> "BoundedConnection | None":
        return self._open.get(peername)

    def set_waiting(self, connection: "BoundedConnection") -> None:
        """The connection waits for a request from now on."""
        if self._open.get(connection.peername) is connection:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def set_accepted(self, connection: "BoundedConnection") -> None:
        """The connection has an acceptable request, so that it is not closed to make room for others."""
        self._waiting.pop(connection, None)


class BoundedConnection(asyncio.Protocol):
    """The protocol of one connection.

    It aborts the connection if a head takes too long or is too large or has too many lines, if the client does not read its answers, or if it
    sends many requests at once. A client whose bytes take long to parse is read more slowly.
    """

    def __init__(self, protocol: HttpToolsProtocol, connections: Connections) -> None:
        self.peername: Peername = ("", 0)
        self._protocol = protocol
        self._connections = connections
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._size = 0
        self._lines = 0
        self._last_bytes = b""
        self._running = 0
        self._has_unread = False
        self._unparsed = b""
        self._is_parse_scheduled = False
        self._throttle = LoopThrottle(burst_seconds=_BURST_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer at once, for clients that connect and send nothing."""
        self._transport = cast("asyncio.Transport", transport)
        if peername := transport.get_extra_info("peername"):
            self.peername = (str(peername[0]), int(peername[1]))
        self._start_head_timer()
        self._protocol.connection_made(self._transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        self._connections.remove(self)
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces. While some wait, reading is paused, unless uvicorn resumes it."""
        self._unparsed += data
        if not self._is_parse_scheduled:
            self._parse()

    def _parse(self) -> None:
        self._is_parse_scheduled = False
        started = monotonic()
        while self._unparsed and not self._transport.is_closing():
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            self._parse_piece(piece)
            # After a piece of a head, let the application start: the rest may be a body.
            if not self._running or monotonic() - started > _SLICE_SECONDS:
                break
        rest_seconds = self._throttle.begin_rest() if self._throttle.count(started) else 0.0
        if self._transport.is_closing():
            return
        if self._unparsed or rest_seconds:
            self._is_parse_scheduled = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(rest_seconds, self._parse)
        elif not self._protocol.flow.read_paused:
            self._transport.resume_reading()

    def _parse_piece(self, piece: bytes) -> None:
        """Count the bytes of a head. While the application runs, bytes belong to the body or to the next request."""
        if self._running:
            self._has_unread = True
        else:
            if self._head_timer is None:
                self._start_head_timer()
            self._size += len(piece)
            self._lines += self._count_lines(piece)
            if self._size > HEAD_BYTES + _PIECE_BYTES or self._lines > MAX_HEAD_LINES:
                self.abort()
                return
        self._protocol.data_received(piece)
        if len(self._protocol.pipeline) > MAX_PIPELINED:
            self.abort()

    def _count_lines(self, piece: bytes) -> int:
        """How many lines of the head are in this piece. The piece may also contain a part of the body."""
        text = self._last_bytes + piece
        self._last_bytes = text[-3:]
        end = text.find(b"\r\n\r\n")
        return text.count(b"\n", 0, end if end >= 0 else len(text))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Start a timer: the client does not read what is sent to it."""
        if self._write_timer is None:
            seconds = self._connections.limits.write_seconds
            self._write_timer = asyncio.get_running_loop().call_later(seconds, self.abort)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        self._protocol.resume_writing()

    def request_started(self) -> None:
        """Stop the timer: the head is complete. The application has its own deadline for the body."""
        self._running += 1
        self._has_unread = False
        self._stop_head_timer()

    def request_accepted(self) -> None:
        self._connections.set_accepted(self)

    def request_finished(self) -> None:
        """Start the timer if a part of the next request may have arrived already."""
        self._running -= 1
        if not self._running:
            self._connections.set_waiting(self)
            if self._has_unread and not self._transport.is_closing():
                self._start_head_timer()

    def abort(self) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        self._connections.remove(self)
        self._transport.abort()

    def _start_head_timer(self) -> None:
        self._size = self._lines = 0
        self._last_bytes = b""
        seconds = self._connections.limits.head_seconds
        self._head_timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


@asynccontextmanager
async def serve_app(
    app: Any, sock: socket.socket, limits: ConnectionLimits | None = None
) -> AsyncIterator[None]:
    """Serve the application on a bound socket while the block runs."""
    connections = Connections(limits or ConnectionLimits(connections=_max_connections()))

    async def bounded_app(scope: Any, receive: Any, send: Any) -> None:
        connection = connections.find(scope["client"])
        if connection is None:  # the client has disconnected already
            await app(scope, receive, send)
            return
        scope["extensions"] = {ACCEPT_EXTENSION: connection.request_accepted}
        connection.request_started()
        try:
            await app(scope, receive, send)
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
        backlog=_BACKLOG,
    )
    config.load()
    http_protocol: Any = config.http_protocol_class

    def make_protocol(**arguments: Any) -> BoundedConnection:
        return BoundedConnection(http_protocol(**arguments), connections)

    config.http_protocol_class = cast("type[asyncio.Protocol]", make_protocol)
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sock.listen(_BACKLOG)  # clients can connect from here on, before uvicorn has started
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        sock.close()


def _max_connections() -> int:
    """How many connections the process may have: it cannot accept more than it may open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        MAX_CONNECTIONS
        if files == resource.RLIM_INFINITY
        else min(MAX_CONNECTIONS, max(files - _OTHER_FILES, 16))
    )


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
            f"Could not listen on {host}:{port}: {error.strerror}. Choose another host or port.",
        ) from None
    return sock
