"""Run one HTTP request: keep its stream alive, and cancel it when its client cancels or disconnects."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.deadlines import Deadlines
from holdfast.wire.http.limits import HttpLimits
from holdfast.wire.http.request import Receive, wait_for_disconnect
from holdfast.wire.http.response import encode_error, http_status
from holdfast.wire.messages import Id, error_line, result_line

log = logging.getLogger(__name__)

_WATCH_DELAY = 0.02  # seconds; most requests are answered sooner, and then watching them would be wasted work


class StreamedResponse(Protocol):
    """A response that is plain JSON, or a stream if messages or keepalives precede the result."""

    async def send_keepalive(self) -> None: ...

    async def send_result(self, line: bytes, status: int = 200) -> None: ...

    async def end(self) -> None: ...


class CancellableRequests(Protocol):
    """The requests in flight of one handshake-era client, which the client can cancel."""

    running: dict[Id, Callable[[], None]]
    """The requests in flight, each with the function that cancels it."""


async def run_request(
    request_id: Id, result: Awaitable[Any], response: "StreamedResponse", running: "RunningRequest"
) -> None:
    """Wait for the result and send it. A cancelled request gets no result."""
    running.start(request_id)
    try:
        try:
            line, status = await _encode_answer(request_id, result, modern=running.session is None)
        finally:
            running.stop(request_id)
        await response.send_result(line, status)
    except asyncio.CancelledError:
        if not running.is_cancelled:
            raise
        running.task.uncancel()
        await response.end()


class DisconnectWatch:
    """Starts `RunningRequest.start_watching` for the requests that are not answered after `_WATCH_DELAY`.

    One timer for all requests costs less than one for each.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self._loop: asyncio.AbstractEventLoop | None = None
        # Belongs to `_loop`: an application can be used in several event loops, one after the other.
        self._deadlines: Deadlines
        self._not_watched: dict[int, RunningRequest] = {}
        self._last_number = 0

    def add(self, running: "RunningRequest") -> int:
        """Watch a request after a short delay. Return its number, for `remove`."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._deadlines = loop, Deadlines(loop, self._start)
        self._last_number += 1
        self._not_watched[self._last_number] = running
        self._deadlines.add(self._last_number, _WATCH_DELAY)
        return self._last_number

    def remove(self, number: int) -> None:
        """Forget a request that is answered."""
        if self._not_watched.pop(number, None) is not None:
            self._deadlines.remove(number)

    def _start(self, number: Id) -> None:
        if isinstance(number, int) and (running := self._not_watched.pop(number, None)) is not None:
            running.start_watching()


class RunningRequest:
    """A request in flight: sends keepalives to its client and can be cancelled.

    A modern client cancels a request by disconnecting. A handshake-era client, which has a `session`, sends a cancellation;
    if it only disconnects, the request continues.
    """

    def __init__(
        self,
        response: "StreamedResponse",
        receive: Receive,
        session: "CancellableRequests | None",
        watch: DisconnectWatch,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self.session = session
        self.is_cancelled = False
        self._response = response
        self._receive = receive
        self._watch = watch
        self._number = 0
        self._watch_task: asyncio.Task[None] | None = None

    def start(self, request_id: Id) -> None:
        """Let the client cancel the request. After a short delay, watch whether the client disconnects."""
        self._number = self._watch.add(self)
        if self.session is not None:
            self.session.running[request_id] = self.cancel

    def stop(self, request_id: Id) -> None:
        """Undo `start`."""
        self._watch.remove(self._number)
        if self._watch_task is not None:
            self._watch_task.cancel()
        if self.session is not None:
            self.session.running.pop(request_id, None)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.task.cancel()

    def start_watching(self) -> None:
        """Watch whether the client disconnects, and send keepalives."""
        self._watch_task = asyncio.ensure_future(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        disconnected = asyncio.ensure_future(wait_for_disconnect(self._receive))
        try:
            while True:
                done, _ = await asyncio.wait([disconnected], timeout=self._watch.limits.keepalive_seconds)
                if done:
                    break
                await self._response.send_keepalive()
        finally:
            disconnected.cancel()
        if self.session is None:
            self.cancel()


async def _encode_answer(request_id: Id, result: Awaitable[Any], *, modern: bool) -> tuple[bytes, int]:
    """Wait for the result. Return the answer as a line, and its HTTP status."""
    try:
        return result_line(request_id, await result), 200
    except HoldfastError as error:
        return encode_error(error, request_id), http_status(error, modern=modern)
    except Exception:
        log.exception("request handler crashed")
        return error_line(request_id, codes.INTERNAL_ERROR.rpc_code, "Internal error."), 200
