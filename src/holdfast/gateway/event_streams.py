"""The event streams of a handshake-era client: each event has an id, after which a client can resume a broken stream."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, TypeAlias

from holdfast.gateway.session_memory import SessionMemory
from holdfast.model.light_event import LightEvent
from holdfast.wire.http.request import Send
from holdfast.wire.http.response import send_response
from holdfast.wire.messages import notification_line

MAX_STREAMS_PER_SESSION = 32
"""If a session has more streams, the oldest that have ended are forgotten."""
MAX_ENDED_BYTES = 1024 * 1024
"""If the ended streams of a session keep more bytes of events, the oldest of these streams are forgotten."""
_MAX_EVENTS_PER_STREAM = 256
_MAX_BYTES_PER_STREAM = 1024 * 1024
_JSON = (b"content-type", b"application/json")
_KEEPALIVE = b": still here\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class EventStream:
    """One stream. Its events are kept, within limits, and sent to the response that the client reads now."""

    def __init__(self, number: int, *, is_primed: bool = False, memory: SessionMemory | None = None) -> None:
        """With `is_primed`, the first event is empty, so that the client knows an id to resume after.

        `memory` counts the bytes of the events.
        """
        self.number = number
        self._is_primed = is_primed
        self._memory = memory
        self._counted: dict[int, int] = {}
        """The bytes of events that `memory` counts, by number."""
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        """The number of the last event."""
        self._sent = 0
        """The number of the last event that was sent to a response."""
        self._write: Write | None = None
        self._replaced = LightEvent()
        self._lock = asyncio.Lock()
        self.ended = LightEvent()

    @property
    def size(self) -> int:
        """How many bytes of events are kept."""
        return self._bytes

    @property
    def is_sent(self) -> bool:
        """Whether all events were sent to a response."""
        return self._sent >= self._last

    async def add(self, line: bytes) -> None:
        """Add a message, and send it if the client reads the stream."""
        self._last += 1
        self._keep(self._last, line)
        await self._flush()

    async def end(self) -> None:
        """End the stream after the events that it has."""
        await self._flush()
        self.ended.set()

    async def send_to(self, write: Write, after: int | None = None) -> asyncio.Event:
        """Send the events to this response from now on, beginning after event `after`, or with the first that was never sent.

        The returned `asyncio.Event` is set when another response takes over.
        """
        self._replaced.set()
        replaced = self._replaced = LightEvent()
        async with self._lock:
            if replaced.is_set():
                return replaced
            self._write = write
            if after is not None:
                self._sent = after
            if self._is_primed and after is None and not self._sent:
                await write(_event(self.number, 0, b""))
        await self._flush()
        return replaced

    def stop_sending_to(self, write: Write) -> None:
        """Stop sending events to this response. Keep them for another one."""
        if self._write is write:
            self._write = None

    def sends_to(self, write: Write) -> bool:
        return self._write is write

    def _keep(self, number: int, line: bytes) -> None:
        self._events.append((number, line))
        self._bytes += len(line)
        while len(self._events) > 1 and (
            len(self._events) > _MAX_EVENTS_PER_STREAM or self._bytes > _MAX_BYTES_PER_STREAM
        ):
            self._drop_oldest()
        if self._memory is None:
            return
        while not (is_counted := self._memory.try_add(len(line))) and len(self._events) > 1:
            self._drop_oldest()
        if is_counted:
            self._counted[number] = len(line)

    def _drop_oldest(self) -> None:
        number, line = self._events.popleft()
        self._bytes -= len(line)
        if self._memory is not None:
            self._memory.remove(self._counted.pop(number, 0))

    def forget(self) -> None:
        """Drop all events: the stream is no longer kept."""
        while self._events:
            self._drop_oldest()

    async def _flush(self) -> None:
        async with self._lock:
            while self._write is not None:
                unsent = next(((n, line) for n, line in self._events if n > self._sent), None)
                if unsent is None:
                    return
                self._sent = unsent[0]
                await self._write(_event(self.number, *unsent))


class EventStreams:
    """The streams of one session. Stream 0 is for messages that belong to no request."""

    def __init__(self, *, is_primed: bool, memory: SessionMemory | None = None) -> None:
        self._is_primed = is_primed
        self._memory = memory
        self.general = EventStream(0, memory=memory)
        self._last_number = 0
        self._streams: dict[int, EventStream] = {}

    def open(self) -> EventStream:
        """A stream for the response to a request."""
        self._last_number += 1
        stream = self._streams[self._last_number] = EventStream(
            self._last_number, is_primed=self._is_primed, memory=self._memory
        )
        self.trim()
        return stream

    def trim(self) -> None:
        """Forget the oldest streams that have ended if they are too many or too large.

        The newest of them stays until the client has got its result, even if it is large.
        """
        ended = [stream for stream in self._streams.values() if stream.ended.is_set()]
        size, excess = sum(stream.size for stream in ended), len(self._streams) - MAX_STREAMS_PER_SESSION
        for stream in ended:
            if excess <= 0 and size <= MAX_ENDED_BYTES:
                return
            if stream is ended[-1] and not stream.is_sent:
                return
            del self._streams[stream.number]
            size, excess = size - stream.size, excess - 1
            stream.forget()

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream that an event belongs to, and the event's number; None if the stream is no longer kept."""
        number, _, after = event_id.partition("-")
        if not (number.isdecimal() and after.isdecimal() and len(event_id) < 40):
            return None
        stream = self.general if number == "0" else self._streams.get(int(number))
        return None if stream is None else (stream, int(after))


class PostResponse:
    """The response to a request of a handshake-era client: plain JSON, or a stream if messages or keepalives precede the result."""

    def __init__(self, send: Send, streams: EventStreams, *, can_stream: bool) -> None:
        self._send = send
        self._streams = streams
        self._stream: EventStream | None = None
        self.can_stream = can_stream

    @cached_property
    def _starting(self) -> asyncio.Lock:
        return asyncio.Lock()  # created when needed: most requests have no stream

    @cached_property
    def _response(self) -> "EventResponse":
        return EventResponse(self._send)

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification before the result, if the client accepts a stream."""
        if self.can_stream:
            await self.send_line(notification_line(method, params))

    async def send_line(self, line: bytes) -> None:
        """Send a message before the result."""
        await (await self._open_stream()).add(line)

    async def send_keepalive(self) -> None:
        """Send a comment, so that proxies keep the stream open."""
        if self.can_stream:
            await self._open_stream()
            await self._response.keep_alive()

    async def send_result(self, line: bytes, status: int = 200) -> None:
        """Send the result: as the last event if a stream was started, else as JSON."""
        if self._stream is None:
            await send_response(self._send, status, line.rstrip(b"\n"), (_JSON,))
            return
        await self._stream.add(line)
        await self.end()

    async def end(self) -> None:
        """End the stream, and start it first if necessary. Nothing more is added."""
        stream = await self._open_stream()
        await stream.end()
        self._streams.trim()
        await self._response.end()  # even if another response sends the stream now: the HTTP server logs a response that does not end as an error

    async def _open_stream(self) -> EventStream:
        async with self._starting:
            if self._stream is None:
                self._stream = self._streams.open()
                await self._response.start()
                await self._stream.send_to(self._response.write)
        return self._stream


class EventResponse:
    """A response that is an event stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.write: Write = self._write

    async def start(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def keep_alive(self) -> None:
        await self.write(_KEEPALIVE)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _event(stream: int, number: int, line: bytes) -> bytes:
    return b"id: %d-%d\nevent: message\ndata: %b\n\n" % (stream, number, line.rstrip(b"\n"))
