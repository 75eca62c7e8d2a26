"""Limit the requests in flight on a connection, and share the limit fairly among the sessions that use it."""

import asyncio
from collections import Counter, deque


class RequestSlots:
    """`total` slots for requests. An owner gets another slot only while more slots are free than it holds.

    So one owner can take about half of the slots, and some are left for the others. Owners that wait take turns. The owner
    `""` stands for a connection that is not shared, and may use all slots.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, owner: str) -> bool:
        """Take a slot if the owner may have one now; return whether it got one."""
        if owner in self._waiting or not self._may_have_more(owner):
            return False
        self._take(owner)
        return True

    async def acquire(self, owner: str) -> None:
        """Wait for a slot and take it."""
        if self.try_acquire(owner):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self.release(owner)
            raise

    def release(self, owner: str) -> None:
        self._free += 1
        if owner:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
        if self._waiting:
            self._grant()

    def _may_have_more(self, owner: str) -> bool:
        return self._free > self._held.get(owner, 0)

    def _take(self, owner: str) -> None:
        self._free -= 1
        if owner:
            self._held[owner] += 1

    def _grant(self) -> None:
        """Give free slots to the owners that wait, one to each."""
        for owner, queue in [*self._waiting.items()]:
            while queue and queue[0].done():  # its caller was cancelled
                queue.popleft()
            if queue and self._may_have_more(owner):
                self._take(owner)
                queue.popleft().set_result(None)
                del self._waiting[owner]
                if queue:
                    self._waiting[owner] = queue  # at the end: another owner is next
            elif not queue:
                del self._waiting[owner]
