"""The tasks of one link: requests that are in flight and streams that are read."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.frame import Message, Request
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)


class InFlight:
    """Starts tasks and ends them all. If the server is gone for one of them, it is gone for all."""

    def __init__(self, peer: Peer, limits: Limits) -> None:
        self._peer = peer
        self._limit = limits.in_flight
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: HoldfastError | None = None
        """Why the link has failed; None while it works."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def fail(self, error: HoldfastError) -> None:
        """Report that the server is gone to every caller that waits for it."""
        if self.failure is None:
            self.failure = error
            self._peer.eof_received()

    async def wait_for_room(self, message: Message) -> None:
        """Make a server that sends too many requests wait for the answers."""
        while isinstance(message, Request) and len(self._tasks) > self._limit:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel every task and wait for its end."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("HTTP request crashed", exc_info=bug)
            self.fail(HoldfastError(codes.CONNECTION_CLOSED, "The request failed unexpectedly."))
