"""Run functions in another thread and deliver their results, with one wake-up per event loop."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


class WorkItem:
    """A function to run in another thread, for a caller that waits on its event loop."""

    __slots__ = ("error", "future", "loop", "must_happen", "on_late", "result", "work")

    def __init__(
        self,
        work: Callable[[Any], Any],
        *,
        must_happen: bool = False,
        on_late: Callable[[], object] | None = None,
    ) -> None:
        self.work = work
        self.must_happen = must_happen
        self.on_late = on_late
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Set the result of the future, unless the caller was cancelled."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)

    def notify_late(self) -> None:
        """Call `on_late` on the caller's event loop, unless the loop is closed."""
        if self.on_late is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.on_late)


def deliver(items: Iterable[WorkItem]) -> None:
    """Settle all of these items, each on its own loop."""
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
        item.settle()
