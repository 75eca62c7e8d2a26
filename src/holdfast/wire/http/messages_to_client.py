"""Messages from the server to a handshake-era client: requests, and notifications that belong to no request.

A request is sent on the stream of the client's own request, and the client answers with a POST. The notifications wait
for the client's GET stream.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.light_event import LightEvent
from holdfast.wire.messages import (
    ErrorResponse,
    Id,
    PeerError,
    Raw,
    Response,
    notification_line,
    request_line,
)

MAX_WAITING_REQUESTS = 64  # requests of one session that wait for an answer
MAX_QUEUED = 64  # notifications that wait for the GET stream; if there are more, the oldest are dropped
MAX_QUEUED_BYTES = 1024 * 1024  # the size of all notifications that wait for the GET stream

SendLine = Callable[[bytes], Awaitable[None]]


class MessagesToClient:
    """The requests that wait for one client's answers, and the notifications that wait for its GET stream."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[Id, asyncio.Future[Raw]] = {}
        self._queue: deque[bytes] = deque(maxlen=MAX_QUEUED)
        self.has_queued = LightEvent()
        """Set while notifications wait."""

    async def ask(self, send: SendLine, method: str, params: Any, *, timeout: float | None = None) -> Raw:
        """Send a request to the client with `send`, and wait for the answer."""
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            raise HoldfastError(
                codes.BUSY,
                f"{MAX_WAITING_REQUESTS} requests to this client are already waiting for an answer. Wait for one of them first.",
            )
        request_id = f"server-{next(self._ids)}"
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            async with asyncio.timeout(timeout):
                await send(request_line(request_id, method, params))
                return await future
        except TimeoutError:
            raise HoldfastError(
                codes.TIMEOUT, f"The client did not answer {method} within {timeout:g} s."
            ) from None
        finally:
            del self._waiting[request_id]

    def receive(self, message: Response | ErrorResponse) -> None:
        """Take an answer of the client. An answer that no request waits for is ignored."""
        future = self._waiting.get(message.id) if message.id is not None else None
        if future is None or future.done():
            return
        if isinstance(message, Response):
            future.set_result(message.result)
        else:
            error = message.error
            future.set_exception(PeerError(error.code, error.message, error.data or None))

    async def push(self, method: str, params: Any) -> None:
        """Queue a notification for the GET stream."""
        line = notification_line(method, params)
        while self._queue and sum(map(len, self._queue)) + len(line) > MAX_QUEUED_BYTES:
            self._queue.popleft()
        self._queue.append(line)
        self.has_queued.set()

    def take_queued(self) -> list[bytes]:
        """Remove and return the notifications that wait."""
        lines = list(self._queue)
        self._queue.clear()
        self.has_queued.clear()
        return lines

    def end(self) -> None:
        """Fail the requests that wait for an answer, because the session has ended."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    HoldfastError(codes.CONNECTION_CLOSED, "The client's session has ended.")
                )
