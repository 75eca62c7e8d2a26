"""Run one HTTP request: keep its stream alive, and cancel it when its client cancels or disconnects."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Id, error_line, result_line
from holdfast.wire.http.limits import HttpLimits
from holdfast.wire.http.request import Receive, wait_for_disconnect
from holdfast.wire.http.response import AsgiResponse, encode_error, http_status
from holdfast.wire.http.sessions import HttpSession

log = logging.getLogger(__name__)

_WATCH_DELAY = 0.02  # most handlers finish sooner and need no watching


async def run_request(
    identity: Id, result: Awaitable[Any], response: AsgiResponse, running: "RunningRequest"
) -> None:
    """Wait for the result and send it; a cancelled request gets no result."""
    running.start(identity)
    try:
        line, status = await _encode_outcome(identity, result, modern=running.session is None)
        running.stop(identity)
        await response.send_result(line, status)
    except asyncio.CancelledError:
        if not running.is_cancelled:
            raise
        running.task.uncancel()
        await response.end()
    finally:
        running.stop(identity)


class RunningRequest:
    """A request in flight: sends keepalives to its client and can be cancelled.

    A modern client cancels a request by disconnecting. A handshake-era client (with a `session`) sends a message to
    cancel; if it disconnects, the request runs to its end.
    """

    def __init__(
        self, response: AsgiResponse, receive: Receive, session: HttpSession | None, limits: HttpLimits
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self.session = session
        self.is_cancelled = False
        self._response = response
        self._receive = receive
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self, identity: Id) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_WATCH_DELAY, self._start_watching)
        if self.session is not None:
            self.session.running[identity] = self.cancel

    def stop(self, identity: Id) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.session is not None:
            self.session.running.pop(identity, None)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.task.cancel()

    def _start_watching(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        disconnected = asyncio.ensure_future(wait_for_disconnect(self._receive))
        try:
            while True:
                done, _ = await asyncio.wait([disconnected], timeout=self._limits.keepalive_seconds)
                if done:
                    break
                await self._response.send_keepalive()
        finally:
            disconnected.cancel()
        if self.session is None:
            self.cancel()


async def _encode_outcome(identity: Id, result: Awaitable[Any], *, modern: bool) -> tuple[bytes, int]:
    try:
        return result_line(identity, await result), 200
    except HoldfastError as error:
        return encode_error(error, identity), http_status(error, modern=modern)
    except Exception:
        log.exception("request handler crashed")
        return error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error."), 200
