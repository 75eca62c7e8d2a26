"""The running tasks of one link: requests in flight and open streams."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.messages import Message, Request
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)


class LinkTasks:
    """Starts the tasks of a link, and cancels them when the link is closed. If a task crashes, the link fails."""

    def __init__(self, peer: Peer, limits: Limits) -> None:
        self._peer = peer
        self._limit = limits.in_flight
        self._tasks: set[asyncio.Task[None]] = set()
        self.throttle = peer.throttle
        """Limits how much of the event loop's time the session's streams take."""
        self.failure: HoldfastError | None = None
        """Why the link has failed, if it has."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def fail(self, error: HoldfastError) -> None:
        """End the link, so that every waiting caller gets an error. Only the first failure counts."""
        if self.failure is None:
            self.failure = error
            self._peer.eof_received()

    async def wait_for_capacity(self, message: Message) -> None:
        """If the message is a request from the server, wait while too many tasks are running."""
        while isinstance(message, Request) and len(self._tasks) > self._limit:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("HTTP request crashed", exc_info=error)
            self.fail(HoldfastError(codes.CONNECTION_CLOSED, "The request failed unexpectedly."))
