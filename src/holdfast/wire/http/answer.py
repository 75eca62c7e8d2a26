"""Answer one request over HTTP while watching that its client is still there."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Id, error_line, result_line
from holdfast.wire.http.body import gone
from holdfast.wire.http.reply import Receive, Reply, refusal_line, status_of
from holdfast.wire.http.sessions import HttpSession
from holdfast.wire.http.terms import Terms

log = logging.getLogger(__name__)

_HEAD_START = 0.02  # most handlers are done by then, and need no watching


async def answer(identity: Id, result: Awaitable[Any], reply: Reply, watch: "Watch") -> None:
    """Wait for the result and send it; a request that was taken back gets none."""
    watch.begin(identity)
    try:
        line, status = await _line(identity, result, modern=watch.session is None)
        watch.end(identity)
        await reply.finish(line, status)
    except asyncio.CancelledError:
        if not watch.is_taken_back:
            raise
        watch.task.uncancel()
        await reply.end()
    finally:
        watch.end(identity)


class Watch:
    """Looks after a request that takes its time: signs of life for its client, and its end when it is taken back.

    In the modern era a client takes a request back by hanging up. In the handshake era (`session`) that takes a
    message of its own, and a request whose client is gone still runs to its end.
    """

    def __init__(self, reply: Reply, receive: Receive, session: HttpSession | None, terms: Terms) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self.session = session
        self.is_taken_back = False
        self._reply = reply
        self._receive = receive
        self._terms = terms
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    def begin(self, identity: Id) -> None:
        """The request is being answered."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_HEAD_START, self._start)
        if self.session is not None:
            self.session.running[identity] = self.take_back

    def end(self, identity: Id) -> None:
        """It is answered, or never will be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.session is not None:
            self.session.running.pop(identity, None)

    def take_back(self) -> None:
        """Nobody waits for the answer any more."""
        self.is_taken_back = True
        self.task.cancel()

    def _start(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        hung_up = asyncio.ensure_future(gone(self._receive))
        try:
            while True:
                done, _ = await asyncio.wait([hung_up], timeout=self._terms.quiet_seconds)
                if done:
                    break
                await self._reply.still_here()
        finally:
            hung_up.cancel()
        if self.session is None:
            self.take_back()


async def _line(identity: Id, result: Awaitable[Any], *, modern: bool) -> tuple[bytes, int]:
    try:
        return result_line(identity, await result), 200
    except HoldfastError as error:
        return refusal_line(error, identity), status_of(error, modern=modern)
    except Exception:
        log.exception("request handler crashed")
        return error_line(identity, codes.INTERNAL_ERROR.rpc, "Internal error."), 200
