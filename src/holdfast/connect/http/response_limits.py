"""aiohttp connections that limit what a server may send.

aiohttp itself limits one header line, the number of headers and the unread part of a body. The classes here also limit
interim responses, trailers and chunk extensions, refuse to switch protocols, and close a connection on which bytes
arrive after the response.
"""

import asyncio
import functools
import re
import select
from time import monotonic
from typing import Any

from aiohttp import ClientError, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from holdfast.connect.http.response import BrokenResponseError

MAX_HEAD_BYTES = 64 * 1024
"""The maximum size of a head with its interim responses, and of the chunk extensions and trailers between two parts of a body."""
MAX_HEADERS = 512
MAX_IDLE = 64
"""How many idle connections a pool keeps."""
IDLE_SECONDS = 60.0

_KEEP_ALIVE = re.compile(r"\btimeout=([0-9]{1,6})\b", re.IGNORECASE)
_FIRST_READ_BYTES, _MIN_READ_BYTES, _MAX_READ_BYTES = 16 * 1024, 1024, 256 * 1024
_SLOW_SECONDS = 0.002  # if parsing what was read takes longer, less is read at once
_SWITCHING, _FIRST_INTERIM, _FIRST_FINAL = 101, 100, 200  # HTTP statuses


class BoundedConnector(TCPConnector):
    """A TCP connector whose connections are `BoundedProtocol`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0, keepalive_timeout=IDLE_SECONDS, **options
        )
        idle: set[BoundedProtocol] = set()
        self._factory = functools.partial[ResponseHandler](BoundedProtocol, loop=self._loop, idle=idle)


class BoundedProtocol(ResponseHandler):
    """One connection. If the server exceeds a limit, the connection is aborted and the request fails."""

    def __init__(self, *, loop: Any, idle: "set[BoundedProtocol]") -> None:
        super().__init__(loop=loop)
        self._idle = idle
        self._failure: BrokenResponseError | None = None
        self._is_tunnel = False
        self._has_response = False
        self._bytes_since_body = 0  # bytes received since the body last grew
        self._reuse_seconds = IDLE_SECONDS
        self._reuse_until = 0.0
        self._poll = select.poll()
        self._read_size = 0
        self._parse_seconds = 0.0

    def take_parse_seconds(self) -> float:
        seconds, self._parse_seconds = self._parse_seconds, 0.0
        return seconds

    # Called by aiohttp's connector

    @property
    def should_close(self) -> bool:
        # Close if a part of the request is not sent yet: the server may have responded early and never read it.
        transport = self.transport
        return super().should_close or transport is None or transport.get_write_buffer_size() > 0

    def is_connected(self) -> bool:
        """Whether an idle connection can be reused. Polls the socket, because the server may have just closed it."""
        if not super().is_connected() or self._should_close or self._reuse_until <= self._loop.time():
            return False
        return not self._poll.poll(0)

    def close(self) -> None:
        """Disconnect at once. A normal close waits until the server has read everything, which may never happen."""
        self.abort()

    def set_response_params(self, **options: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Prepare for a request, or for the CONNECT to a proxy. aiohttp passes a timer only for requests."""
        self._is_tunnel = "timer" not in options
        self._idle.discard(self)
        self._has_response = False
        self._bytes_since_body = 0
        self._parse_seconds = 0.0
        super().set_response_params(**options)

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._set_read_size(_FIRST_READ_BYTES)

    def data_received(self, data: bytes) -> None:
        """Parse what the server sent. If it exceeds a limit, abort the connection."""
        if self._failure is not None:
            return
        if data and self._is_complete():
            self.abort()  # the server sent bytes after the response
            return
        began = monotonic()
        before = self._body_bytes()
        self._bytes_since_body += len(data)
        super().data_received(data)
        if self._body_bytes() != before:
            self._bytes_since_body = 0
        elif self._bytes_since_body > MAX_HEAD_BYTES:
            self._fail("its headers are too long")
        if self._is_complete() and self not in self._idle:
            self._finish()
        seconds = monotonic() - began
        self._parse_seconds += seconds
        if data:  # after a pause, aiohttp calls this method without data
            self._adapt_read_size(seconds)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._idle.discard(self)
        if exc is not None and self._failure is None and self._payload is not None:
            self._fail("the connection broke")  # only a regular close ends a body without a length
        super().connection_lost(exc)

    # Called by the parser

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Handle the head of a response. Interim responses (1xx) are ignored."""
        message, _ = data
        if self._failure is not None:
            return
        if self._has_response:
            self._should_close = True  # a second response to the same request
        elif message.code == _SWITCHING:
            self._fail("it wants to switch protocols")
        elif message.code < _FIRST_INTERIM:
            self._fail(f"its response is not HTTP (status {message.code})")
        elif message.code >= _FIRST_FINAL:
            if "Transfer-Encoding" in message.headers and not message.chunked:
                self._fail("its response has an unknown transfer encoding")
                return
            timeout = _KEEP_ALIVE.search(message.headers.get("Keep-Alive", ""))
            # One second less than the server says, so that no request is sent while the server closes the connection.
            self._reuse_seconds = int(timeout[1]) - 1 if timeout else IDLE_SECONDS
            self._has_response = True
            self._bytes_since_body = 0
            super().feed_data(data, size)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Report the first failure, not the errors that follow from it, to the caller and to the reader of an unfinished body.

        If aiohttp's parser refuses bytes after the head, aiohttp does not tell the reader, which would wait forever.
        """
        failure = self._failure or exc
        super().set_exception(failure, *([exc_cause] if exc_cause is not None else []))
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            is_known = isinstance(failure, (ClientError, BrokenResponseError))
            payload.set_exception(failure if is_known else BrokenResponseError("its response is not HTTP"))

    def _adapt_read_size(self, seconds: float) -> None:
        """Halve how much is read at once if parsing took long, as with tiny chunks: other sessions would be delayed. Double it if parsing was fast."""
        if seconds > _SLOW_SECONDS:
            size = max(self._read_size // 2, _MIN_READ_BYTES)
        elif seconds < _SLOW_SECONDS / 4:
            size = min(self._read_size * 2, _MAX_READ_BYTES)
        else:
            return
        if size != self._read_size:
            self._set_read_size(size)

    def _set_read_size(self, size: int) -> None:
        self._read_size = size
        # asyncio's transports have no public setting for this. Transports of other event loops do not have `max_size`.
        target: Any = getattr(self.transport, "_ssl_protocol", self.transport)
        if hasattr(target, "max_size"):
            target.max_size = size

    def _fail(self, reason: str) -> None:
        if self._failure is not None:
            return
        self._failure = BrokenResponseError(reason)
        self._parser = None  # the parser would report the end of the connection instead
        self.set_exception(self._failure)
        if self.transport is not None:
            self.transport.abort()

    def _finish(self) -> None:
        """After a complete response, decide whether the next request may use the connection."""
        is_full = len(self._idle) >= MAX_IDLE
        if self._should_close or self._has_leftover() or self._reuse_seconds <= 0 or is_full:
            self._should_close = True
            self._loop.call_soon(self.abort)  # after aiohttp has taken the response from the queue
        else:
            self._reuse_until = self._loop.time() + self._reuse_seconds
            self._idle.add(self)

    def _has_leftover(self) -> bool:
        """Whether the server sent the beginning of another response."""
        if self._parser is None:
            return True
        try:
            return self._parser.feed_eof() is not None
        except Exception:  # aiohttp raises various types for a message that is cut short
            return True

    def _is_complete(self) -> bool:
        if not self._has_response or self._is_tunnel:
            return False
        return self._payload is None or self._payload.is_eof()

    def _body_bytes(self) -> int:
        return self._payload.total_bytes if self._payload is not None else 0
