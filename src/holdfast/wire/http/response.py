"""Send the response to one HTTP request: plain JSON, or an event stream if messages or keepalives precede the result."""

import asyncio
from typing import Any

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.request import BadHeadError, Send
from holdfast.wire.messages import Id, PeerError, error_line, notification_line

JSON_HEADER = (b"content-type", b"application/json")
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": still here\n\n"
# The HTTP statuses that MCP prescribes, by JSON-RPC code. Other errors have the status of their Holdfast code.
_STATUS_BY_RPC_CODE = {
    codes.PARSE_ERROR.rpc_code: 400,
    codes.INVALID_REQUEST.rpc_code: 400,
    codes.BAD_ARGUMENT.rpc_code: 400,
    codes.HEADER_MISMATCH.rpc_code: 400,
    codes.MISSING_CAPABILITY.rpc_code: 400,
    codes.UNSUPPORTED_VERSION.rpc_code: 400,
    codes.METHOD_NOT_FOUND.rpc_code: 404,
}


class AsgiResponse:
    """One response, sent through ASGI."""

    def __init__(self, send: Send, *, can_stream: bool) -> None:
        self._send = send
        self._can_stream = can_stream
        self._lock: asyncio.Lock | None = None  # created when needed: most responses have no stream
        self._is_streaming = False

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification before the result, if the client accepts a stream."""
        if self._can_stream:
            await self._send_part(_event(notification_line(method, params)))

    @property
    def can_stream(self) -> bool:
        """Whether the client accepts a stream."""
        return self._can_stream

    async def send_line(self, line: bytes) -> None:
        """Send a message before the result."""
        await self._send_part(_event(line))

    async def send_keepalive(self) -> None:
        """Send a comment, so that proxies keep the stream open."""
        if self._can_stream:
            await self._send_part(_KEEPALIVE)

    async def send_result(
        self, line: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Send the result: as the last event if a stream was started, else as JSON."""
        if self._lock is not None:
            async with self._lock:
                if self._is_streaming:
                    await self._send_body(_event(line), more=False)
                    return
        await send_response(self._send, status, line.rstrip(b"\n"), (JSON_HEADER, *headers))

    async def end(self) -> None:
        """End the stream without a result."""
        async with self._stream_lock():
            if not self._is_streaming:
                await self._start_stream()
            await self._send_body(b"", more=False)

    async def _send_part(self, data: bytes) -> None:
        async with self._stream_lock():
            if not self._is_streaming:
                await self._start_stream()
            await self._send_body(data, more=True)

    def _stream_lock(self) -> asyncio.Lock:
        """The lock that orders the parts of a stream. It is created before the stream is started."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _start_stream(self) -> None:
        self._is_streaming = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def _event(line: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % line.rstrip(b"\n")


async def send_response(
    send: Send, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send,
    error: HoldfastError,
    request_id: Id | None = None,
    status: int = 0,
    *,
    challenge: str = "Holdfast-Context",
) -> None:
    """Send an error as JSON-RPC. The HTTP status is `status`, or if that is 0 the status of the error.

    `challenge` is the `WWW-Authenticate` header of a response with status 401.
    """
    bad_head = error if isinstance(error, BadHeadError) else None
    status = status or (bad_head.status if bad_head else error.code.http_status)
    allow = ((b"allow", bad_head.allow.encode()),) if bad_head and bad_head.allow else ()
    close = ((b"connection", b"close"),) if bad_head and bad_head.closes else ()
    await send_response(
        send,
        status,
        encode_error(error, request_id).rstrip(b"\n"),
        (JSON_HEADER, *allow, *close, *_extra_headers(error.code, status, challenge)),
    )


def encode_error(error: HoldfastError, request_id: Id | None) -> bytes:
    """Encode an error as a JSON-RPC message."""
    if isinstance(error, PeerError):
        return error_line(request_id, error.rpc_code, error.message, error.data)
    return error_line(request_id, error.code.rpc_code, error.message, error.details or None)


def http_status(error: HoldfastError, *, modern: bool) -> int:
    """The HTTP status of an error that answers a well-formed request.

    Handshake-era clients treat any status but 200 as a broken connection, except 401 and 403.
    """
    if error.code.http_status in (401, 403):
        return error.code.http_status
    if not modern:
        return 200
    if isinstance(error, PeerError):  # the answer of a handler: the HTTP request itself succeeded
        return _STATUS_BY_RPC_CODE.get(error.rpc_code, 200)
    return _STATUS_BY_RPC_CODE.get(
        error.code.rpc_code, 200 if error.code is codes.INTERNAL_ERROR else error.code.http_status
    )


def _extra_headers(code: Code, status: int, challenge: str) -> tuple[tuple[bytes, bytes], ...]:
    """The header that tells the client what to do: to send credentials, or when to try again."""
    if status == 401 or code.http_status == 401:
        return ((b"www-authenticate", challenge.encode()),)
    if code.retryable:
        return ((b"retry-after", b"1"),)
    return ()
