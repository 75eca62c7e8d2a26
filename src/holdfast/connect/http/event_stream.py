"""The bodies of HTTP responses: streams of server-sent events and single messages, within bounds."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from holdfast.connect.http.response import HttpResponse
from holdfast.model import codes
from holdfast.model.limits import Limits
from holdfast.wire.frame import Malformed, Message, parse_line
from holdfast.wire.lines import OversizedLine

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OFF_LOOP = 1024 * 1024  # a message longer than this is parsed in a thread
_RETRY_SECONDS = (0.1, 1.0, 30.0)  # at least, by default, at most
_ID_LENGTH = 1024


class EventTooLongError(Exception):
    """An event has more bytes than it may have."""


@dataclass(slots=True)
class ServerSentEvent:
    """One event. Its data is still bytes: the caller decides how strictly to decode them."""

    name: str = "message"
    data: bytes = b""
    id: str = ""
    retry_ms: int | None = None


@dataclass(slots=True)
class StreamPosition:
    """How far a stream was read, and how long to wait before resuming it."""

    event_id: str = ""
    retry_seconds: float = _RETRY_SECONDS[1]


async def read_message(text: bytes, limits: Limits) -> Message:
    """Parse one message, as strictly as a line of a pipe."""
    if len(text) > limits.line_bytes:
        message = parse_line(OversizedLine(len(text), text[:1024], text[-256:]), limits)
    elif len(text) > _OFF_LOOP:
        message = await asyncio.to_thread(parse_line, text, limits)
    else:
        message = parse_line(text, limits)
    return Malformed(codes.PARSE_ERROR, "It is empty.") if message is None else message


async def read_events(
    response: HttpResponse, position: StreamPosition, limits: Limits
) -> AsyncIterator[ServerSentEvent]:
    """The events of a stream, keeping `position` up to date; an event without end is an error."""
    parser = EventParser(limits.line_bytes)
    while chunk := await response.read_chunk():
        for event in parser.feed(chunk):
            if event.id and len(event.id) <= _ID_LENGTH and event.id.isascii() and event.id.isprintable():
                position.event_id = event.id
            if event.retry_ms is not None:
                seconds = event.retry_ms / 1000
                position.retry_seconds = min(max(seconds, _RETRY_SECONDS[0]), _RETRY_SECONDS[2])
            if event.data:
                yield event


async def read_messages(
    response: HttpResponse, position: StreamPosition, limits: Limits
) -> AsyncIterator[Message]:
    """The messages of a stream of events."""
    async for event in read_events(response, position, limits):
        if event.name == "message":
            yield await read_message(event.data, limits)


@dataclass(slots=True)
class EventParser:
    """Splits a stream into events. Of an event that has not ended, at most `limit` bytes are kept."""

    limit: int
    _line: bytearray = field(default_factory=bytearray)  # the part of a line that has arrived
    _data: bytes | bytearray | None = None
    _event: ServerSentEvent | None = None
    _at_start: bool = True
    _after_return: bool = False

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """The events that end in this chunk."""
        if not data:
            return
        if self._after_return:
            data = data.removeprefix(b"\n")  # the return before it ended that line
        self._after_return = data.endswith(b"\r")
        lines = data.splitlines()
        rest = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        for line in lines:
            if self._line:
                line = bytes(self._line) + line  # noqa: PLW2901 - the same line, whole
                self._line.clear()
            if self._at_start:
                line = line.removeprefix(_BYTE_ORDER_MARK)  # noqa: PLW2901 - the same line, without it
                self._at_start = False
            if line:
                self._parse_line(line)
            elif self._event is not None:
                yield self._end(self._event)
        if rest:
            self._check_size(len(rest))
            self._line += rest

    def _parse_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment, which keeps the connection alive
        value = value.removeprefix(b" ")
        event = self._event = self._event or ServerSentEvent()
        match name:
            case b"data":
                self._append(value)
            case b"event":
                event.name = value[: self.limit].decode("utf-8", "replace") or "message"
            case b"id" if b"\0" not in value:
                event.id = value[: self.limit].decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                event.retry_ms = int(value)
            case _:
                pass

    def _append(self, value: bytes) -> None:
        self._check_size(len(value) + 1)
        if self._data is None:
            self._data = value  # most events have one line of data
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _check_size(self, added: int) -> None:
        if added + len(self._line) + len(self._data or b"") > self.limit:
            raise EventTooLongError(f"an event has more than {self.limit} bytes")

    def _end(self, event: ServerSentEvent) -> ServerSentEvent:
        event.data = bytes(self._data or b"")
        self._event = self._data = None
        return event
