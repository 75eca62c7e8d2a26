"""Work for another thread, and its outcome on the way back: one wake-up of the loop for many."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

Outcome = Any


class Job:
    """A function to run elsewhere, for a caller who waits on its own loop."""

    __slots__ = ("error", "future", "loop", "outcome", "work")

    def __init__(self, work: Callable[[Any], Outcome]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.outcome: Outcome = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Hand the outcome over; a caller that was cancelled does not want it any more."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(self.error)


def send_back(jobs: Iterable[Job]) -> None:
    """Settle all of these jobs, each on its own loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, its_jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, its_jobs)
        except RuntimeError:
            # The loop ended without waiting for its answer.
            continue


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
