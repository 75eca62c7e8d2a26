"""Share a connection fairly among its sessions: slots for requests, and a queue of lines to send."""

import asyncio
from collections import deque
from collections.abc import Callable


class RequestSlots:
    """Limits the requests in flight to `total`.

    An owner is a session that uses the connection. It gets another slot only while more slots are free than it holds, so
    it can take about half of the slots. Owners that wait take turns. The owner of a connection that is not shared is `""`,
    and may use all slots.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, owner: str) -> bool:
        """Take a slot if the owner may have one now. Return whether it got one."""
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
            if not granted.cancelled():  # the slot was granted just before the task was cancelled
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
            self._held[owner] = self._held.get(owner, 0) + 1

    def _grant(self) -> None:
        """Give free slots to the owners that wait, one to each."""
        for owner, queue in [*self._waiting.items()]:
            while queue and queue[0].done():  # the task that waited was cancelled
                queue.popleft()
            if queue and self._may_have_more(owner):
                self._take(owner)
                queue.popleft().set_result(None)
                del self._waiting[owner]
                if queue:
                    self._waiting[owner] = queue  # behind the other owners
            elif not queue:
                del self._waiting[owner]


class SendQueue:
    """The lines that wait because the remote peer reads too slowly. The sessions that sent them take turns."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[bytes, asyncio.Future[None]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, line: bytes, owner: str) -> "asyncio.Future[None]":
        """Append a line. The future is done when the line is written. Cancel the future to remove the line."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append((line, written))
        return written

    def write_next(self, write: Callable[[bytes], None]) -> None:
        """Write the next line of the owner whose turn it is."""
        owner, queue = next(iter(self._queues.items()))
        line, written = queue.popleft()
        del self._queues[owner]
        if queue:
            self._queues[owner] = queue  # behind the other owners
        if not written.done():
            write(line)
            written.set_result(None)

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """Discard all lines. The future of each line gets its own error from `make_error`."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for _, written in queue:
                if not written.done():
                    written.set_exception(make_error())
