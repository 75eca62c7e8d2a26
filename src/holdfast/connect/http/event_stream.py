"""Reads messages from the bodies of HTTP responses: streams of server-sent events, and single messages."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from time import monotonic

from holdfast.connect.http.response import HttpResponse
from holdfast.model import codes
from holdfast.model.limits import Limits
from holdfast.wire.lines import OversizedLine
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.message_memory import LONG_LINE_BYTES, LongLineMemory, MessageMemory
from holdfast.wire.messages import Malformed, Message, parse_line
from holdfast.wire.parse_threads import parse_in_thread

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MIN_RETRY_SECONDS, _DEFAULT_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 1.0, 30.0
_MAX_ID_LENGTH = 1024
_MAX_NAME_BYTES = 1024
_PIECE_BYTES = 8 * 1024  # how much is parsed before other sessions may get a turn


class EventTooLongError(Exception):
    """An event is longer than the limit, or than what is left of the session's memory for long messages."""


@dataclass(slots=True)
class ServerSentEvent:
    """One event. Its data is not decoded."""

    name: str = "message"
    data: bytes = b""
    id: str = ""
    retry_ms: int | None = None


@dataclass(slots=True)
class StreamPosition:
    """How far a stream was read, and how long to wait before it is resumed."""

    event_id: str = ""
    retry_seconds: float = _DEFAULT_RETRY_SECONDS

    def update(self, event: ServerSentEvent) -> None:
        if event.id and len(event.id) <= _MAX_ID_LENGTH and event.id.isascii() and event.id.isprintable():
            self.event_id = event.id
        if event.retry_ms is not None:
            seconds = event.retry_ms / 1000
            self.retry_seconds = min(max(seconds, _MIN_RETRY_SECONDS), _MAX_RETRY_SECONDS)


async def read_message(text: bytes | bytearray, limits: Limits, throttle: LoopThrottle) -> Message:
    """Parse one message, as strictly as a line from a pipe."""
    if len(text) > limits.line_bytes:
        message = parse_line(OversizedLine(len(text), bytes(text[:1024]), bytes(text[-256:])), limits)
    elif len(text) > LONG_LINE_BYTES:
        message = await parse_in_thread(text, limits, throttle)
    else:
        message = parse_line(text, limits)
    return Malformed(codes.PARSE_ERROR, "It is empty.") if message is None else message


async def read_body(response: HttpResponse, limits: Limits, throttle: LoopThrottle) -> Message:
    """Read a body that consists of one message."""
    with MessageMemory(throttle.long_line_memory) as memory:
        body = await response.read(limits.line_bytes, throttle, memory)
        return await read_message(body, limits, throttle)


async def read_events(
    response: HttpResponse, position: StreamPosition, limits: Limits, throttle: LoopThrottle
) -> AsyncIterator[ServerSentEvent]:
    """The events of a stream that have data. Updates `position`. Raises `EventTooLongError`.

    The time that the caller takes for an event is also charged to the throttle.
    """
    with MessageMemory(throttle.long_line_memory) as memory:
        parser = EventParser(limits.line_bytes, memory)
        while chunk := await response.read_chunk(throttle):
            started = monotonic()
            for start in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk if len(chunk) <= _PIECE_BYTES else chunk[start : start + _PIECE_BYTES]
                for event in parser.feed(piece):
                    position.update(event)
                    throttle.charge_since(started)
                    started = monotonic()
                    if event.data:
                        yield event
                    if throttle.charge_since(started, includes_waiting=True):
                        await throttle.pause()
                    started = monotonic()
                if throttle.charge_since(started):
                    await throttle.pause()
                started = monotonic()


async def read_messages(
    response: HttpResponse, position: StreamPosition, limits: Limits, throttle: LoopThrottle
) -> AsyncIterator[Message]:
    """The messages in a stream of events. Events with another name than `message` are skipped."""
    async for event in read_events(response, position, limits, throttle):
        if event.name == "message":
            yield await read_message(event.data, limits, throttle)


@dataclass(slots=True)
class EventParser:
    """Splits a stream into events. Raises `EventTooLongError`."""

    limit: int
    """The maximum size of an event, in bytes."""
    memory: MessageMemory = field(default_factory=lambda: MessageMemory(LongLineMemory()))
    """The memory for the event that is being read."""
    _line: bytearray = field(default_factory=bytearray)  # the start of a line whose end has not arrived yet
    _data: bytes | bytearray | None = None
    _event: ServerSentEvent | None = None
    _at_start: bool = True
    _after_cr: bool = False

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Parse the next chunk of the stream. Yield the events that are complete."""
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")  # the second half of a CRLF
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        rest = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        for line in lines:
            if self._line:
                line = bytes(self._line) + line  # noqa: PLW2901 - the complete line
                self._line.clear()
            if self._at_start:
                line = line.removeprefix(_BYTE_ORDER_MARK)  # noqa: PLW2901 - the line without the mark
                self._at_start = False
            if line:
                self._parse_line(line)
            elif self._event is not None:
                yield self._finish_event(self._event)
                self.memory.release()
        if rest:
            self._check_size(len(rest))
            self._line += rest

    def _parse_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment, sent to keep the connection alive
        value = value.removeprefix(b" ")
        event = self._event = self._event or ServerSentEvent()
        match name:
            case b"data":
                self._append_data(value)
            case b"event":
                event.name = value[:_MAX_NAME_BYTES].decode("utf-8", "replace") or "message"
            case b"id" if b"\0" not in value:
                # One character more than the limit, so that a longer id is recognised and ignored.
                event.id = value[: _MAX_ID_LENGTH + 1].decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                event.retry_ms = int(value)
            case _:
                pass

    def _append_data(self, value: bytes) -> None:
        self._check_size(len(value) + 1)
        if self._data is None:
            self._data = value  # most events have one line of data
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _check_size(self, added: int) -> None:
        size = added + len(self._line) + len(self._data or b"")
        if size > self.limit:
            raise EventTooLongError(f"an event has more than {self.limit} bytes")
        if not self.memory.try_grow_to(size):
            raise EventTooLongError(
                f"an event of {size} bytes does not fit into this session's limit for long messages that are received at the same time"
            )

    def _finish_event(self, event: ServerSentEvent) -> ServerSentEvent:
        event.data = bytes(self._data or b"")
        self._event = self._data = None
        return event
