"""Make the merged lists of a session's servers, each once at a time, and keep them for a while.

A list may have thousands of items, and a client may ask for it, or for a name that is not in it, many times a second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass

from holdfast.gateway.paging import MergedList
from holdfast.gateway.session_memory import SessionMemory
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.task_turns import run_in_current_turns

_KEPT_SECONDS = 10.0
"""How long a large list is kept, if no server says that it has changed."""
_LOOK_UP_SECONDS = 1.0
"""How long a small list is kept for looking up names that are not in it. A client that asks for a small list gets a new one."""
_PAUSE_SECONDS = 1.0
"""How long after a large list was made, or one that is too long, it is made again at the earliest. Requests wait for that."""


@dataclass(frozen=True, slots=True)
class _Kept:
    merged: MergedList
    size: int
    """How many bytes are counted."""
    expiry: asyncio.TimerHandle


class KeptLists:
    """The lists of one session, by name."""

    def __init__(self, memory: SessionMemory) -> None:
        """`memory` counts the bytes of the lists. A list for which it has no room is not kept."""
        self._memory = memory
        self._kept: dict[str, _Kept] = {}
        self._waiting: dict[str, asyncio.Task[MergedList]] = {}
        """The lists that will be made after the pause."""
        self._running: dict[str, asyncio.Task[MergedList]] = {}
        """The lists that are being made, and have not changed since then."""
        self._next_at: defaultdict[str, float] = defaultdict(float)
        """The time of the event loop at which each list may be made again."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(
        self, name: str, make: Callable[[], Coroutine[None, None, MergedList]], *, is_look_up: bool = False
    ) -> MergedList:
        """The list with this name. Requests that ask for it at the same time share one."""
        kept = self._kept.get(name)
        if kept is not None and (kept.merged.is_large or is_look_up):
            return kept.merged
        making = self._running.get(name) or self._waiting.get(name)
        if making is None:
            making = asyncio.create_task(run_in_current_turns(self._make(name, make)))
            self._waiting[name] = making
            making.add_done_callback(lambda task: self._end(name, task))
        return await asyncio.shield(making)

    def forget(self, name: str) -> None:
        """The list may have changed: make it again for the next request."""
        self._running.pop(name, None)  # what it has read may be older than the change
        if (kept := self._kept.pop(name, None)) is not None:
            kept.expiry.cancel()
            self._memory.remove(kept.size)

    def forget_all(self) -> None:
        for name in {*self._kept, *self._running}:
            self.forget(name)

    async def _make(self, name: str, make: Callable[[], Coroutine[None, None, MergedList]]) -> MergedList:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        async with self._locks[name]:
            if (seconds := self._next_at[name] - loop.time()) > 0:
                await asyncio.sleep(seconds)
            self._running[name] = self._waiting.pop(name)
            try:
                merged = await make()
            except HoldfastError as error:
                if error.code is codes.BAD_ANSWER:
                    self._next_at[name] = loop.time() + _PAUSE_SECONDS
                raise
            if merged.is_large:
                self._next_at[name] = loop.time() + _PAUSE_SECONDS
            if self._running.get(name) is task:
                self._keep(name, merged)
            return merged

    def _keep(self, name: str, merged: MergedList) -> None:
        self.forget(name)
        if self._memory.try_add(merged.size):
            seconds = _KEPT_SECONDS if merged.is_large else _LOOK_UP_SECONDS
            # In an empty context: the timer would keep the current context, and with it the current request, in memory.
            expiry = asyncio.get_running_loop().call_later(seconds, self.forget, name, context=Context())
            self._kept[name] = _Kept(merged, merged.size, expiry)

    def _end(self, name: str, task: asyncio.Task[MergedList]) -> None:
        for tasks in (self._waiting, self._running):
            if tasks.get(name) is task:
                del tasks[name]
        if not task.cancelled():
            task.exception()  # the requests that wait for it raise it; all of them may have been cancelled
