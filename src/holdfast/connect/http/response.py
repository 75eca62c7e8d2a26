"""The response to an HTTP request. Its body is read while it arrives."""

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Protocol

from aiohttp import ClientError, ClientResponse

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.message_memory import MessageMemory

_SLICE_SECONDS = 0.001  # how long a body is read before the event loop may do other work
_MIN_READ_BYTES, _MAX_READ_BYTES = 256, 64 * 1024  # how much of the received body is read at once


class UnreachableError(Exception):
    """No connection to the server could be made."""


class BrokenResponseError(Exception):
    """The server's response is not HTTP, exceeds a limit, or ended before it was complete."""


class ParsingConnection(Protocol):
    """A connection that measures how long it takes to parse what it receives."""

    def take_parse_seconds(self) -> float:
        """How long parsing took since the last call."""
        ...


class HttpResponse:
    """The status and headers of a response, and its body in chunks. The caller closes it."""

    __slots__ = ("_connection", "_last_pause", "_read_bytes", "_response", "headers", "status")

    def __init__(self, response: ClientResponse, connection: ParsingConnection | None = None) -> None:
        self._response = response
        self._connection = connection
        self._last_pause = 0.0
        self._read_bytes = _MIN_READ_BYTES
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names are case-insensitive. If a header is repeated, its first value is returned."""

    @property
    def reason(self) -> str:
        """The reason phrase, without control characters."""
        return "".join(filter(str.isprintable, self._response.reason or ""))

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed, which no request asks for."""
        encodings = self._response.headers.getall("Content-Encoding", ())
        return any(encoding.strip().lower() != "identity" for encoding in encodings)

    @property
    def set_cookies(self) -> Sequence[str]:
        return self._response.headers.getall("Set-Cookie", [])

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self._response.raw_headers

    async def read_chunk(self, throttle: LoopThrottle | None = None) -> bytes:
        """Wait for the next part of the body; empty at the end.

        Parsing is charged to the throttle, because a server can send many tiny chunks. If the throttle's share of time is used up,
        wait first. While the caller waits, aiohttp stops reading.
        """
        now = monotonic()
        if throttle is not None and throttle.must_wait(now):
            await throttle.pause()
        elif now - self._last_pause > _SLICE_SECONDS:
            await asyncio.sleep(0)
            self._last_pause = monotonic()
        content = self._response.content
        try:
            chunk, is_chunk_end = b"", True
            while is_chunk_end and not chunk:
                chunk, is_chunk_end = await content.readchunk()
            began = monotonic()
            if chunk and (more := content.read_nowait(self._read_bytes)):
                chunk += more
        except ClientError as error:
            raise broken_response(error) from None
        seconds = monotonic() - began
        self._adapt_read_bytes(seconds)
        if throttle is not None and self._connection is not None:
            throttle.charge(seconds + self._connection.take_parse_seconds())
        return chunk

    def _adapt_read_bytes(self, seconds: float) -> None:
        """Halve how much is read at once if reading took long, as with tiny chunks, which must be joined. Double it if reading was fast."""
        if seconds > _SLICE_SECONDS / 2:
            self._read_bytes = max(self._read_bytes // 2, _MIN_READ_BYTES)
        elif self._read_bytes < _MAX_READ_BYTES and seconds < _SLICE_SECONDS / 8:
            self._read_bytes *= 2

    async def read(
        self, limit: int, throttle: LoopThrottle | None = None, memory: MessageMemory | None = None
    ) -> bytes | bytearray:
        """Read the whole body. Raise if it has more than `limit` bytes, or does not fit into `memory`."""
        body: bytes | bytearray = b""
        while chunk := await self.read_chunk(throttle):
            if len(body) + len(chunk) > limit:
                raise HoldfastError(codes.TOO_LARGE, f"The answer has more than {limit} bytes.")
            if memory is not None and not memory.try_grow_to(len(body) + len(chunk)):
                raise HoldfastError(
                    codes.TOO_LARGE,
                    "The answer does not fit into this session's limit for long messages that are received at the same time. "
                    "Try again later.",
                )
            if not body:
                body = chunk  # most bodies arrive at once
            elif isinstance(body, bytearray):
                body += chunk
            else:
                body = bytearray(body + chunk)
        return body

    def close(self) -> None:
        """Close the connection, unless the response is complete: then the connection is in the pool again."""
        self._response.close()


def broken_response(error: ClientError) -> BrokenResponseError:
    """Translate an error from aiohttp. Its text is dropped, because it may contain bytes of the response."""
    from aiohttp import ClientPayloadError, ClientResponseError

    if isinstance(error, ClientResponseError):
        return BrokenResponseError("its response is not HTTP")
    if isinstance(error, ClientPayloadError):
        return BrokenResponseError("its response ended too early")
    return BrokenResponseError("it closed the connection")
