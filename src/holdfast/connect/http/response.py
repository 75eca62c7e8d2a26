"""The response to an HTTP request. Its body is read as it arrives."""

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic

from aiohttp import ClientError, ClientResponse

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_SLICE_SECONDS = 0.001  # how long a body is read without letting the event loop do other work


class UnreachableError(Exception):
    """No connection to the server could be made."""


class BrokenResponseError(Exception):
    """The server's response is not HTTP, or ended before it was complete."""


class HttpResponse:
    """The status and headers of a response, and its body in chunks. The caller closes it."""

    __slots__ = ("_last_pause", "_response", "headers", "status")

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self._last_pause = 0.0
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names are case-insensitive. If a header is repeated, look-ups return its first value."""

    @property
    def reason(self) -> str:
        """The reason phrase after the status, without control characters."""
        return "".join(filter(str.isprintable, self._response.reason or ""))

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed, although no request accepts that."""
        encodings = self._response.headers.getall("Content-Encoding", ())
        return any(encoding.strip().lower() != "identity" for encoding in encodings)

    @property
    def set_cookies(self) -> Sequence[str]:
        """The values of all `Set-Cookie` headers."""
        return self._response.headers.getall("Set-Cookie", [])

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self._response.raw_headers

    async def read_chunk(self) -> bytes:
        """Wait for the next part of the body; empty at the end."""
        if monotonic() - self._last_pause > _SLICE_SECONDS:  # a server can send many tiny chunks at once
            await asyncio.sleep(0)
            self._last_pause = monotonic()
        try:
            chunk, is_chunk_end = b"", True
            while is_chunk_end and not chunk:
                chunk, is_chunk_end = await self._response.content.readchunk()
        except ClientError as error:
            raise broken_response(error) from None
        return chunk

    async def read(self, limit: int) -> bytes:
        """Read the whole body. Raise if it has more than `limit` bytes."""
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.read_chunk():
            size += len(chunk)
            if size > limit:
                raise HoldfastError(codes.TOO_LARGE, f"The answer has more than {limit} bytes.")
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def close(self) -> None:
        """Disconnect. If the response was complete, its connection is already back in the pool."""
        self._response.close()


def broken_response(error: ClientError) -> BrokenResponseError:
    """Translate an error of aiohttp. Its text is dropped, because it may contain bytes of the response."""
    from aiohttp import ClientPayloadError, ClientResponseError

    if isinstance(error, ClientResponseError):
        return BrokenResponseError("its response is not HTTP")
    if isinstance(error, ClientPayloadError):
        return BrokenResponseError("its response ended too early")
    return BrokenResponseError("it closed the connection")
