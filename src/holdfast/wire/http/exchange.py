"""One exchange of HTTP/1.1 at a time on a connection: a request goes out, and its answer is read as it comes.

Parsing is llhttp's (httptools). What a server may send without end is bounded here.
"""

import asyncio
import math
import re
import select
from collections.abc import Callable
from typing import TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.url import Url

_HEAD_BYTES = 64 * 1024  # of a head; of what comes behind a body, too
_HEAD_LINES = 512
_UNREAD_BYTES = 256 * 1024
_TIMEOUT = re.compile(r"\btimeout=([0-9]{1,6})\b", re.IGNORECASE)
_ENDLESS = "its headers have no end"
_FIRST_STATUS, _SWITCHING, _FIRST_FINAL = 100, 101, 200
_MANY_LINES = ("set-cookie",)  # headers whose lines must not be joined


class BrokenOff(Exception):
    """The exchange ended before the answer did."""


class Connection(asyncio.Protocol):
    """One connection, and the exchange that is under way on it, if any."""

    __slots__ = ("_forget", "_keep", "_paused", "_reply", "_transport", "free_until", "url")

    def __init__(self, url: Url, keep: "Keep", forget: "Forget") -> None:
        self.url = url
        self.free_until = 0.0
        """When whoever keeps it for the next exchange should let it go."""
        self._keep = keep
        self._forget = forget
        self._reply: Reply | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False

    def begin(self, request: bytes) -> "Reply":
        """Send a request; its reply takes all that comes from now on."""
        self._reply = Reply(self)
        if self._transport is None:
            self._reply.lost()
        else:
            self._transport.write(request)
        return self._reply

    def end(self, kept_seconds: float) -> None:
        """The exchange is over; whether another may follow, and within what time, is for the server to say."""
        self._reply = None
        self.go_on()
        transport = self._transport
        # A server may answer before it has read the whole request, and never read the rest.
        is_stuck = transport is None or transport.is_closing() or transport.get_write_buffer_size() > 0
        if kept_seconds > 0 and not is_stuck:
            self._keep(self, kept_seconds)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def is_quiet(self) -> bool:
        """Whether it stands and nothing has come: a server that hung up meanwhile is noticed before it is asked."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self.free_until <= asyncio.get_running_loop().time():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def pause(self) -> None:
        """Let the server wait: what it sent is not read yet."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Something came; if nobody asked, the server is not to be trusted with the next request."""
        if self._reply is None:
            self.hang_up()
        else:
            self._reply.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._transport = None
        self._forget(self)
        if self._reply is not None:
            self._reply.lost(exc)


class Reply:
    """An answer, whose body is read by whoever asked, as it comes."""

    __slots__ = (
        *("status", "reason", "headers", "cookies"),
        *("_connection", "_parser", "_parts", "_unread", "_head_bytes", "_head_lines"),
        *("_has_head", "_is_over", "_is_clean", "_failure", "_waiter"),
    )

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        """By name in lower case."""
        self.cookies: list[str] = []
        """What `Set-Cookie` says, line by line."""
        self._connection: Connection | None = connection
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._unread = 0
        self._head_bytes = 0
        self._head_lines = 0
        self._has_head = False
        self._is_over = False
        self._is_clean = False
        self._failure = ""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked."""
        return 200 <= self.status < 300

    @property
    def kind(self) -> str:
        """The type of the body."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def until_head(self) -> None:
        """Wait for status and headers."""
        while not self._has_head:
            await self._more()

    async def part(self) -> bytes:
        """What has come of the body since last time; nothing at its end."""
        while not self._parts:
            if self._is_over:
                return b""
            await self._more()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._unread = 0
        if self._connection is not None:
            self._connection.go_on()
        return data

    async def read(self, most: int) -> bytes:
        """The whole body; one that is longer than `most` is an error."""
        parts: list[bytes] = []
        size = 0
        while part := await self.part():
            size += len(part)
            if size > most:
                raise HoldfastError(codes.TOO_LARGE, f"The answer has more than {most} bytes.")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Nobody reads on: the connection is kept if the answer is over, else the server is hung up on."""
        connection, self._connection = self._connection, None
        self._parser = None  # they hold each other
        if connection is not None:
            connection.end(self._kept_seconds())
            self._failure = self._failure or "it was hung up on"
            self._wake()

    def _kept_seconds(self) -> float:
        """For how long the server keeps the connection: a little less than it says, so that no request meets its end."""
        if not (self._is_over and self._is_clean):
            return 0
        told = _TIMEOUT.search(self.headers.get("keep-alive", ""))
        return int(told[1]) - 1 if told else math.inf

    # What the connection says

    def take(self, data: bytes) -> None:
        """A piece of the answer."""
        if self._parser is None:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("it wants to speak another protocol")
        except HttpParserError as error:
            self._fail(f"its answer is no HTTP ({str(error)[:100]})")
        if self._head_bytes > _HEAD_BYTES:
            self._fail(_ENDLESS)
        if self._unread > _UNREAD_BYTES and self._connection is not None:
            self._connection.pause()
        self._wake()

    def lost(self, error: Exception | None = None) -> None:
        """The connection is gone, which may well be the end of the answer."""
        sized = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._has_head and not sized and not self._failure and error is None:
            self._is_over = True
        elif not self._is_over:
            self._failure = self._failure or "it hung up"
        self._wake()

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self._is_clean = False
        if self._connection is not None:
            self._connection.hang_up()

    # What the parser says

    def on_message_begin(self) -> None:
        """A head begins; behind the answer there is nothing to begin, and no answer to the next request."""
        if self._has_head:
            self._refuse("it answered twice")

    def on_status(self, status: bytes) -> None:
        """The words beside the status."""
        self.reason += "".join(filter(str.isprintable, status.decode("latin-1")))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if self._has_head:
            return  # behind the body: nothing we asked for
        self._head_lines += 1
        if self._head_lines > _HEAD_LINES:
            self._refuse(_ENDLESS)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        if key in _MANY_LINES:
            self.cookies.append(text)
        else:
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """The head is there; one that says only that there is more to come is passed over."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == _SWITCHING:
            self._refuse("it wants to speak another protocol")
        elif status < _FIRST_STATUS:
            self._refuse(f"its answer is no HTTP (status {status})")
        elif status < _FIRST_FINAL:
            self.headers.clear()
            self.cookies.clear()
            self.reason = ""
        else:
            self.status = status
            self._has_head = True
            self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._parts.append(body)
        self._unread += len(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        """The answer is over."""
        if self._has_head:
            assert self._parser is not None
            self._is_over = True
            self._is_clean = self._parser.should_keep_alive()

    def _refuse(self, why: str) -> None:
        """Fail, and let the parser stop where it is."""
        self._fail(why)
        raise BrokenOff(why)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        if self._failure:
            raise BrokenOff(self._failure)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


Keep: TypeAlias = Callable[[Connection, float], None]
"""Takes a connection that is free, for the next exchange within so many seconds."""

Forget: TypeAlias = Callable[[Connection], None]
"""Hears that a connection is gone."""
