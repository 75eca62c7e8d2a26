"""The sessions that were started in another session."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.session.session import Session


class ChildSessions:
    """The children of one session. Owned children are closed when the session is closed or cancelled."""

    def __init__(self) -> None:
        self._children: set[Session] = set()
        self.owned: set[Session] = set()
        self._close_tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> "Iterator[Session]":
        return iter(self._children)

    def add(self, child: "Session") -> None:
        self._children.add(child)

    def remove(self, child: "Session") -> None:
        self._children.discard(child)

    def own(self, child: "Session") -> None:
        """Close this child when its parent is closed or cancelled."""
        self.owned.add(child)
        child.on_closed(lambda: self.owned.discard(child))

    def start_closing_owned(self) -> None:
        """Start to close the owned children, because their parent was cancelled. Do not wait for them."""
        for child in self.owned:
            task = asyncio.create_task(child.close("the session that created it was cancelled"))
            self._close_tasks.add(task)
            task.add_done_callback(self._close_tasks.discard)

    async def close_owned(self) -> None:
        """Close the owned children, because their parent is being closed."""
        children = [child.close("the session that created it was closed") for child in self.owned]
        await asyncio.gather(*children, *self._close_tasks, return_exceptions=True)
