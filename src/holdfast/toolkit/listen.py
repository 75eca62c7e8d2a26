"""An HTTP server that lets slow clients go: uvicorn, with a deadline on headers and a limit on their size."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

HEADER_SECONDS = 10.0
HEADER_BYTES = 64 * 1024
CONNECTIONS = 4096
_GRACE = 3
_BODY_SHARE = 256 * 1024  # the last piece with headers in it may have that much of the body
_BACKLOG = 1024


class Impatient(HttpToolsProtocol):
    """A connection that must have sent all headers of a request in time, and not too many of them."""

    seconds = HEADER_SECONDS
    header_bytes = HEADER_BYTES

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The clock starts at once: a client that connects and says nothing is let go too."""
        super().connection_made(transport)
        self._size = 0
        self._clock: asyncio.TimerHandle | None = self.loop.call_later(self.seconds, self._let_go)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; while its headers are not complete they count as such."""
        if self._clock is not None:
            self._size += len(data)
            if self._size > self.header_bytes + _BODY_SHARE:
                self._let_go()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """The first byte of a request, after others on the same connection."""
        super().on_message_begin()
        if self._clock is None:
            self._size = 0
            self._clock = self.loop.call_later(self.seconds, self._let_go)

    def on_headers_complete(self) -> None:
        """In time. The body has a deadline of its own, in the application."""
        self._stop()
        super().on_headers_complete()

    def _let_go(self) -> None:
        self._clock = None
        self.transport.abort()

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


@asynccontextmanager
async def listen(app: Any, sock: socket.socket) -> AsyncIterator[None]:
    """Serve the application on a bound socket while the block runs."""
    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
        backlog=_BACKLOG,
    )
    server = _Server(config)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        up = asyncio.ensure_future(server.up.wait())
        await asyncio.wait([up, task], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if task.done():
            await task
        yield
    finally:
        server.should_exit = True
        await task
        sock.close()


class _Server(uvicorn.Server):
    """Says when it is up. Signals are the toolbox's business: it has more to end than connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.up.set()

    def capture_signals(self) -> Any:
        """Capture none."""
        return nullcontext()


def bound(host: str, port: int) -> socket.socket:
    """A socket at the address; port 0 stands for any that is free."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"Could not listen on {host}:{port}: {error.strerror}. Choose another port."
        ) from None
    return sock
