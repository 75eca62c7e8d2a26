"""An aiohttp connection that bounds what a server may send, and is reused only when it is clean.

aiohttp's own limits cover one header line, the number of headers and the unread part of a body. The
connection adds the rest: interim responses, trailers and chunk extensions without end, switched protocols,
and bytes that arrive after the response.
"""

import functools
import re
import select
from typing import Any

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from holdfast.connect.http.response import BrokenResponseError

MAX_HEAD_BYTES = 64 * 1024
"""The most bytes of a response head, with the interim responses before it; of what is not body after it, too."""
MAX_HEADERS = 512
MAX_IDLE = 64
"""The most connections of one pool that are kept for the next request."""
IDLE_SECONDS = 60.0

_KEEP_ALIVE = re.compile(r"\btimeout=([0-9]{1,6})\b", re.IGNORECASE)
_SWITCHING, _FIRST_INTERIM, _FIRST_FINAL = 101, 100, 200


class BoundedConnector(TCPConnector):
    """A TCP connector whose connections are bounded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0, keepalive_timeout=IDLE_SECONDS, **options
        )
        idle: set[BoundedProtocol] = set()
        self._factory = functools.partial[ResponseHandler](BoundedProtocol, loop=self._loop, idle=idle)


class BoundedProtocol(ResponseHandler):
    """One connection. A server that breaks a bound is disconnected, and its response is an error."""

    def __init__(self, *, loop: Any, idle: "set[BoundedProtocol]") -> None:
        super().__init__(loop=loop)
        self._idle = idle
        self._failure: BrokenResponseError | None = None
        self._is_tunnel = False
        self._has_response = False
        self._uncounted = 0  # bytes received since the last part of the body
        self._reuse_seconds = IDLE_SECONDS
        self._reuse_until = 0.0

    # What aiohttp's connector asks and does

    @property
    def should_close(self) -> bool:
        # A server may respond before it has read the whole request, and never read the rest.
        transport = self.transport
        return super().should_close or transport is None or transport.get_write_buffer_size() > 0

    def is_connected(self) -> bool:
        """Whether an idle connection can be reused: a server that closed it just now is noticed before a request is sent."""
        if not super().is_connected() or self._should_close or self._reuse_until <= self._loop.time():
            return False
        assert self.transport is not None
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Disconnect without waiting for the server, which may never read what is left to send."""
        self.abort()

    def set_response_params(self, **options: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin a request, or the CONNECT to a proxy: aiohttp gives a timer only to a request."""
        self._is_tunnel = "timer" not in options
        self._idle.discard(self)
        self._has_response = False
        self._uncounted = 0
        super().set_response_params(**options)

    # What the transport reports

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if data and self._is_complete():
            self.abort()  # nothing was requested
            return
        before = self._body_bytes()
        self._uncounted += len(data)
        super().data_received(data)
        if self._body_bytes() != before:
            self._uncounted = 0
        elif self._uncounted > MAX_HEAD_BYTES:
            self._fail("its headers have no end")
        if self._is_complete() and self not in self._idle:
            self._finish()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._idle.discard(self)
        if exc is not None and self._failure is None and self._payload is not None:
            self._fail("the connection broke")  # which is not the end of a body without a length
        super().connection_lost(exc)

    # What the parser reports

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take one response head. Interim ones (1xx) say only that there is more to come."""
        message, _ = data
        if self._failure is not None:
            return
        if self._has_response:
            self._should_close = True  # a second response, which answers no request
        elif message.code == _SWITCHING:
            self._fail("it wants to switch protocols")
        elif message.code < _FIRST_INTERIM:
            self._fail(f"its response is not HTTP (status {message.code})")
        elif message.code >= _FIRST_FINAL:
            if "Transfer-Encoding" in message.headers and not message.chunked:
                self._fail("its response has an unknown transfer encoding")
                return
            timeout = _KEEP_ALIVE.search(message.headers.get("Keep-Alive", ""))
            # A second less than the server says, so that no request meets the end of the connection.
            self._reuse_seconds = int(timeout[1]) - 1 if timeout else IDLE_SECONDS
            self._has_response = True
            self._uncounted = 0
            super().feed_data(data, size)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Keep the first reason."""
        super().set_exception(self._failure or exc, *([exc_cause] if exc_cause is not None else []))

    def _fail(self, reason: str) -> None:
        if self._failure is not None:
            return
        self._failure = BrokenResponseError(reason)
        self._parser = None  # which would report the end of the connection instead
        self.set_exception(self._failure)
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(self._failure)
        if self.transport is not None:
            self.transport.abort()

    def _finish(self) -> None:
        """The response is complete: decide whether the next request may use the connection."""
        is_full = len(self._idle) >= MAX_IDLE
        if self._should_close or self._has_leftover() or self._reuse_seconds <= 0 or is_full:
            self._should_close = True
            self._loop.call_soon(self.abort)  # after the response has been read from the queue
        else:
            self._reuse_until = self._loop.time() + self._reuse_seconds
            self._idle.add(self)

    def _has_leftover(self) -> bool:
        """Whether the parser has begun another message behind the response."""
        if self._parser is None:
            return True
        try:
            return self._parser.feed_eof() is not None
        except Exception:  # the parser's ways to say that the message is cut short
            return True

    def _is_complete(self) -> bool:
        if not self._has_response or self._is_tunnel:
            return False
        return self._payload is None or self._payload.is_eof()

    def _body_bytes(self) -> int:
        return self._payload.total_bytes if self._payload is not None else 0
