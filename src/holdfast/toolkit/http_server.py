"""Serve an ASGI application with uvicorn, and limit the time and the size of a request's head (its line and headers).

uvicorn itself waits for a head without a limit. `HeadDeadline` wraps uvicorn's protocol of each connection, and uses only
the interfaces of asyncio and ASGI: it forwards every event to uvicorn, and takes a head as complete when uvicorn calls the
application.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import uvicorn

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 4096
_SHUTDOWN_SECONDS = 3
_BODY_BYTES = 256 * 1024  # the chunk that completes a head may contain this much of the body
_BACKLOG = 1024

Peername: TypeAlias = tuple[str, int]


class HeadDeadline(asyncio.Protocol):
    """The protocol of one connection. It aborts the connection if a head takes too long or is too large."""

    def __init__(
        self, protocol: asyncio.Protocol, open_connections: "dict[Peername, HeadDeadline]", seconds: float
    ) -> None:
        self._protocol = protocol
        self._open = open_connections
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0
        self._running = 0
        self._has_unread = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer at once, for clients that connect and send nothing."""
        self._transport = cast("asyncio.Transport", transport)
        peername = transport.get_extra_info("peername")
        self._peername: Peername = (str(peername[0]), int(peername[1])) if peername else ("", 0)
        self._open[self._peername] = self
        self._start_timer()
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._open.get(self._peername) is self:
            del self._open[self._peername]
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head. While the application runs, bytes belong to the body or to the next request."""
        if self._running:
            self._has_unread = True
        else:
            if self._timer is None:
                self._start_timer()
            self._size += len(data)
            if self._size > HEAD_BYTES + _BODY_BYTES:
                self._abort()
                return
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def request_started(self) -> None:
        """Stop the timer: the head is complete. The application has its own deadline for the body."""
        self._running += 1
        self._has_unread = False
        self._stop_timer()

    def request_finished(self) -> None:
        """Start the timer if a part of the next request may have arrived already."""
        self._running -= 1
        if self._has_unread and not self._running and not self._transport.is_closing():
            self._start_timer()

    def _start_timer(self) -> None:
        self._size = 0
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self._stop_timer()
        self._transport.abort()


@asynccontextmanager
async def serve_app(
    app: Any, sock: socket.socket, *, head_seconds: float = HEAD_SECONDS
) -> AsyncIterator[None]:
    """Serve the application on a bound socket while the block runs."""
    open_connections: dict[Peername, HeadDeadline] = {}

    async def app_with_deadline(scope: Any, receive: Any, send: Any) -> None:
        connection = open_connections.get(scope["client"])
        if connection is None:  # the client has disconnected already
            await app(scope, receive, send)
            return
        connection.request_started()
        try:
            await app(scope, receive, send)
        finally:
            connection.request_finished()

    config = uvicorn.Config(
        app_with_deadline,
        http="httptools",
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_BACKLOG,
    )
    config.load()
    http_protocol: Any = config.http_protocol_class

    def make_protocol(**arguments: Any) -> HeadDeadline:
        return HeadDeadline(http_protocol(**arguments), open_connections, head_seconds)

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
