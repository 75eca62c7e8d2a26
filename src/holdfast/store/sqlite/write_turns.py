"""The writes that wait for a transaction. If many bytes wait, the owners of the writes take turns."""

from collections import deque
from queue import Empty, SimpleQueue

from holdfast.store.sqlite.work_item import WorkItem

# A larger batch is not faster and delays its first write.
_MAX_BATCH = 1000
MAX_BATCH_BYTES = 1024 * 1024
"""A transaction with more than one write has at most about this many bytes, because every write waits for the running transaction."""
SMALL_BYTES = 64 * 1024
"""Writes of up to this size are made before larger ones."""
_OWNER_BYTES = MAX_BATCH_BYTES // 4  # of small writes of one owner in one transaction, while others wait


class WriteTurns:
    """Takes the next writes from the queue, in order. If they have many bytes, it sorts all that wait by their quota owners.

    Then each transaction has small writes of every owner, and large ones of one owner after the other. The writes of an owner
    stay in order.
    """

    def __init__(self, queue: "SimpleQueue[WorkItem | None]") -> None:
        self._queue = queue
        self._sorted: dict[str, deque[WorkItem]] = {}
        """The sorted writes, by quota owner; the owner whose turn is next comes first."""
        self.has_ended = False
        """Whether the queue has ended: the last item was None."""

    @property
    def is_empty(self) -> bool:
        """Whether no write waits."""
        return not self._sorted and self._queue.empty()

    def take(self, wait: float | None) -> list[WorkItem]:
        """The writes of the next transaction. If there is none, wait for one; the list is empty if none arrives in time."""
        if self._sorted:
            self._sort([])
            return self._take_turns()
        items: list[WorkItem] = []
        size = 0
        try:
            # Only the writer's thread takes items, so `get` does not block if the queue is not empty.
            while not items or (len(items) < _MAX_BATCH and not self._queue.empty()):
                item = self._queue.get(timeout=wait)
                if item is None:
                    self.has_ended = True
                    break
                items.append(item)
                size += item.size
        except Empty:
            pass
        if size <= MAX_BATCH_BYTES or len(items) == 1:  # the usual case
            return items
        self._sort(items)
        return self._take_turns()

    def _sort(self, items: list[WorkItem]) -> None:
        """Sort these writes, and then all that are in the queue."""
        for item in items:
            self._sorted.setdefault(item.quota_owner, deque()).append(item)
        while not self.has_ended and not self._queue.empty():
            item = self._queue.get()
            if item is None:
                self.has_ended = True
            else:
                self._sorted.setdefault(item.quota_owner, deque()).append(item)

    def _take_turns(self) -> list[WorkItem]:
        items: list[WorkItem] = []
        size = 0
        for owner in [*self._sorted]:
            if size >= MAX_BATCH_BYTES or len(items) >= _MAX_BATCH:
                break
            queue, own, before = self._sorted[owner], 0, len(items)
            while queue and queue[0].size <= SMALL_BYTES and own < _OWNER_BYTES and len(items) < _MAX_BATCH:
                own += queue[0].size
                items.append(queue.popleft())
            size += own
            if len(items) > before:
                self._end_turn(owner)
        # At least one large write, so that these never starve.
        is_first = True
        for owner in [*self._sorted]:
            next_size = self._sorted[owner][0].size
            if next_size <= SMALL_BYTES:
                continue
            if not is_first and size + next_size > MAX_BATCH_BYTES:
                break
            is_first = False
            size += next_size
            items.append(self._sorted[owner].popleft())
            self._end_turn(owner)
        return items

    def _end_turn(self, owner: str) -> None:
        """Move the owner to the end, so that another one is next."""
        queue = self._sorted.pop(owner)
        if queue:
            self._sorted[owner] = queue
