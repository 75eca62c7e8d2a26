"""What a shell has under way: requests that are out, streams that are read, and the end of all of them."""

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


class Errands:
    """Tasks of one link. A server that is gone is gone for all of them; `close` leaves none."""

    def __init__(self, peer: Peer, limits: Limits) -> None:
        self._peer = peer
        self._most = limits.in_flight
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: HoldfastError | None = None
        """Why the server is gone, where it is."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin one."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def gone(self, error: HoldfastError) -> None:
        """The server is gone: everybody who waits for it hears of it."""
        if self.failure is None:
            self.failure = error
            self._peer.input_ended()

    async def room(self, message: Message) -> None:
        """A server that asks without end waits until it was answered."""
        while isinstance(message, Request) and len(self._tasks) > self._most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Drop what is still under way."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("HTTP exchange crashed", exc_info=bug)
            self.gone(HoldfastError(codes.CONNECTION_CLOSED, "The exchange failed unexpectedly."))
