"""The answer to one HTTP request: plain JSON, or a stream of events when there is something to tell before it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from holdfast.model.codes import INTERNAL_ERROR, Code
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Id, error_line, notification_line
from holdfast.wire.peer import PeerError

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_QUIET = b": still here\n\n"
# What the protocol says about the status of an error; the rest is the code's own business.
_STATUS = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}


class Reply:
    """What goes back to one client, once."""

    def __init__(self, send: Send, *, streams: bool) -> None:
        self._send = send
        self._streams = streams
        self._lock = asyncio.Lock()
        self._begun = False

    async def notify(self, method: str, params: Any) -> None:
        """Tell the client something before the answer; one that takes no stream is not told."""
        if self._streams:
            await self.event(notification_line(method, params))

    async def event(self, line: bytes) -> None:
        """One message on the stream, which begins with the first."""
        await self._part(b"event: message\ndata: %b\n\n" % line.rstrip(b"\n"))

    async def still_here(self) -> None:
        """A sign of life while there is nothing to tell."""
        if self._streams:
            await self._part(_QUIET)

    async def finish(
        self, line: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """The answer itself: the last event of the stream, if there is one."""
        async with self._lock:
            if self._begun:
                await self._body(b"event: message\ndata: %b\n\n" % line.rstrip(b"\n"), more=False)
            else:
                await respond(self._send, status, line.rstrip(b"\n"), (_JSON, *headers))

    async def end(self) -> None:
        """No answer: the stream just ends."""
        async with self._lock:
            if not self._begun:
                await self._begin()
            await self._body(b"", more=False)

    async def _part(self, data: bytes) -> None:
        async with self._lock:
            if not self._begun:
                await self._begin()
            await self._body(data, more=True)

    async def _begin(self) -> None:
        self._begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


async def respond(
    send: Send, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """A whole answer at once."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, error: HoldfastError, identity: Id | None = None, status: int = 0) -> None:
    """A refusal, as JSON-RPC and as HTTP tell it."""
    status = status or error.code.http
    await respond(
        send, status, refusal_line(error, identity).rstrip(b"\n"), (_JSON, *_extra(error.code, status))
    )


def refusal_line(error: HoldfastError, identity: Id | None) -> bytes:
    """An error as a JSON-RPC message."""
    if isinstance(error, PeerError):
        return error_line(identity, error.rpc, error.message, error.data)
    return error_line(identity, error.code.rpc, error.message, error.details or None)


def status_of(error: HoldfastError, *, modern: bool) -> int:
    """The status of a request that was understood and refused.

    Clients of the handshake era take any other than 200 for a broken connection, unless it is about who they are.
    """
    if error.code.http in (401, 403):
        return error.code.http
    if not modern:
        return 200
    rpc = error.rpc if isinstance(error, PeerError) else error.code.rpc
    return _STATUS.get(rpc, 200 if error.code is INTERNAL_ERROR else error.code.http)


def _extra(code: Code, status: int) -> tuple[tuple[bytes, bytes], ...]:
    if status == 401:
        return ((b"www-authenticate", b"Holdfast-Context"),)
    if code.retryable:
        return ((b"retry-after", b"1"),)
    return ()
