"""Functions that run in the threads of the store, and how their results get back to the event loop."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import Any

from holdfast.store.pending_event import settle_future
from holdfast.store.store import OnDone

log = getLogger(__name__)


class WorkItem:
    """A function to run in a thread of the store. `on_done` is called on the event loop that made the item."""

    __slots__ = (
        "error",
        "loop",
        "must_happen",
        "on_done",
        "on_postponed_done",
        "quota_owner",
        "result",
        "size",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Any], Any],
        on_done: OnDone,
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
        quota_owner: str = "",
        size: int = 0,
    ) -> None:
        """`quota_owner` and `size`: see `Store.submit`."""
        self.work = work
        self.quota_owner = quota_owner
        self.size = size
        self.on_done = on_done
        self.must_happen = must_happen
        self.on_postponed_done = on_postponed_done
        self.loop = asyncio.get_running_loop()
        self.result: Any = None
        self.error: BaseException | None = None

    def notify_postponed_done(self) -> None:
        """Call `on_postponed_done` on the caller's event loop, unless the loop is closed."""
        if self.on_postponed_done is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.on_postponed_done)


def awaited_item(work: Callable[[Any], Any]) -> "tuple[WorkItem, asyncio.Future[Any]]":
    """An item and a future for its result."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return WorkItem(work, partial(settle_future, future)), future


def send_results(items: Iterable[WorkItem]) -> None:
    """Call `on_done` of each item on its own event loop. Each loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WorkItem]] = {}
    for item in items:
        by_loop.setdefault(item.loop, []).append(item)
    for loop, loop_items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, loop_items)
        except RuntimeError:
            # The loop was closed without waiting for the result.
            continue


def _settle(items: list[WorkItem]) -> None:
    for item in items:
        try:
            item.on_done(item.result, item.error)
        except Exception:
            log.exception("the result of a write or read could not be delivered")
