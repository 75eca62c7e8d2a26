"""A numbered list that keeps only the last items, and counts those that were dropped."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RecentItems(Generic[T]):
    """Keeps the last `limit` items. Numbers start at 1 and only rise."""

    def __init__(self, limit: int) -> None:
        self._items: deque[tuple[int, T]] = deque(maxlen=limit)
        self.count = 0
        """How many items were added, which is also the number of the last one."""

    def add(self, item: T) -> int:
        """Add an item and return its number."""
        self.count += 1
        self._items.append((self.count, item))
        return self.count

    @property
    def dropped(self) -> int:
        """How many items are no longer kept."""
        return self.count - len(self._items)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iter(tuple(self._items))

    def get(self, number: int) -> T | None:
        """Return the item with this number; None if there is none, or if it was dropped."""
        return next((item for kept, item in self._items if kept == number), None)

    def after(self, number: int) -> list[tuple[int, T]]:
        """Return the kept items with higher numbers."""
        return [(kept, item) for kept, item in self._items if kept > number]
