"""Run long work in short slices in worker threads, so that owners take turns and a cancelled caller stops the work."""

import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.model.worker_threads import WorkerThreads

T = TypeVar("T")

_SLICE_SECONDS = 0.02


async def run_in_slices(threads: WorkerThreads, steps: Generator[None, None, T], *, owner: str) -> T:
    """Run the generator to its end and return its result. It may be paused whenever it yields.

    If the caller is cancelled, the generator is closed at its next yield.
    """
    work = _Work(steps)
    try:
        while (done := await threads.run(work.advance, owner=owner)) is None:
            pass
        return done.result
    finally:
        work.stop()


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    result: T


class _Work(Generic[T]):
    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self._is_stopped = False

    def advance(self) -> _Done[Any] | None:
        """Run for one slice; None if there is more to do."""
        until = time.monotonic() + _SLICE_SECONDS
        try:
            while time.monotonic() < until and not self._is_stopped:
                next(self._steps)
        except StopIteration as end:
            return _Done(end.value)
        if self._is_stopped:
            self._steps.close()
        return None

    def stop(self) -> None:
        self._is_stopped = True
        with suppress(ValueError):  # a thread is running it, and will close it
            self._steps.close()
