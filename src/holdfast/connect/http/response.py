"""The response to one HTTP request, whose body is read as it arrives."""

from collections.abc import Mapping, Sequence

from aiohttp import ClientError, ClientResponse

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


class UnreachableError(Exception):
    """No connection to the server could be made."""


class BrokenResponseError(Exception):
    """The server's response is not HTTP, or ended before it was complete."""


class HttpResponse:
    """Status and headers, and the body in chunks. The caller closes it."""

    __slots__ = ("_response", "headers", "reason", "status")

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.reason = "".join(filter(str.isprintable, response.reason or ""))
        self.headers: Mapping[str, str] = response.headers
        """By name in any case; of a repeated header, the first value."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed, which no request of ours asks for."""
        encodings = self._response.headers.getall("Content-Encoding", ())
        return any(encoding.strip().lower() != "identity" for encoding in encodings)

    @property
    def set_cookies(self) -> Sequence[str]:
        """The `Set-Cookie` headers, one by one."""
        return self._response.headers.getall("Set-Cookie", [])

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self._response.raw_headers

    async def read_chunk(self) -> bytes:
        """The part of the body that has arrived since the last call; empty at the end."""
        try:
            return await self._response.content.readany()
        except ClientError as error:
            raise broken_response(error) from None

    async def read(self, limit: int) -> bytes:
        """The whole body; a body of more than `limit` bytes is an error."""
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.read_chunk():
            size += len(chunk)
            if size > limit:
                raise HoldfastError(codes.TOO_LARGE, f"The answer has more than {limit} bytes.")
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def close(self) -> None:
        """Disconnect, unless the response is complete: then the connection is kept for the next request."""
        self._response.close()


def broken_response(error: ClientError) -> BrokenResponseError:
    """What aiohttp says of a response that failed, without the response's own bytes."""
    from aiohttp import ClientPayloadError, ClientResponseError

    if isinstance(error, ClientResponseError):
        return BrokenResponseError("its response is not HTTP")
    if isinstance(error, ClientPayloadError):
        return BrokenResponseError("its response ended too early")
    return BrokenResponseError("it closed the connection")
