"""The running tasks of one link: requests in flight and open streams."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Malformed, Message, Request
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

MAX_POSTS = 16
"""How many answers and notifications a link sends concurrently. If as many wait or are being sent, no request of the server is read."""
_ANSWER_SECONDS = 0.001  # about how long it takes to sign and send an answer, and to read the response


class LinkTasks:
    """Starts the tasks of a link, and cancels them when the link is closed. If a task crashes, the link fails."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._posts: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.throttle = peer.throttle
        """Limits how much of the event loop's time the streams of the session's quota owner take, and the answers to them."""
        self.failure: HoldfastError | None = None
        """Why the link has failed, if it has."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def start_post(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start to send an answer or a notification."""
        task = self.start(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)
        return task

    def fail(self, error: HoldfastError) -> None:
        """End the link, so that every waiting caller gets an error. Only the first failure counts."""
        if self.failure is None:
            self.failure = error
            self._peer.eof_received()

    async def wait_for_capacity(self, message: Message) -> None:
        """Call this before a message of a stream is delivered. If it causes an answer, wait while too many are being sent.

        The answer is charged in advance, so that the stream of a server that asks all the time is read slowly.
        """
        if not isinstance(message, Request | Malformed):
            return
        self.throttle.charge(_ANSWER_SECONDS)
        while len(self._posts) >= MAX_POSTS:
            await asyncio.wait(self._posts, return_when=asyncio.FIRST_COMPLETED)

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
