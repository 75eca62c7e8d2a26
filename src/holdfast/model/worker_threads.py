"""Threads for blocking work: one pool for each kind of work, so that no kind makes another wait.

asyncio's default executor is not used: everything would share its few threads, and the process could not end while one
of them is blocked.
"""

import asyncio
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_IDLE_SECONDS = 10.0  # an idle thread ends after this time
_SLICE_SECONDS = 0.02  # how long `run_in_slices` works before another owner may have the thread


class WorkerThreads:
    """Runs functions in up to `threads` threads, and for one owner in up to `per_owner` of them.

    With `per_owner`, an owner gets another thread only while more threads are free than it uses. Owners, such as
    sessions, take turns. The process does not wait for these threads when it ends.
    """

    def __init__(self, name: str, *, threads: int, per_owner: int | None = None) -> None:
        self._name = name
        self._max_threads = threads
        self._per_owner = per_owner or threads
        self._is_shared = per_owner is not None
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        """Start without threads and jobs: in a new pool, and after a fork, because the parent's threads do not run in the child."""
        self._changed = threading.Condition()
        self._queues: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._running: Counter[str] = Counter()
        self._waiting = 0  # jobs in the queues
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[..., T], *args: Any, owner: str = "") -> T:
        """Call the function in a thread, with the context variables of the caller.

        If the caller is cancelled, a call that has begun continues, and counts for its owner until it returns.
        """
        future: Future[T] = Future()
        with self._changed:
            call = partial(copy_context().run, function, *args)
            queue = self._queues.setdefault(owner, deque())
            queue.append((future, call))
            self._waiting += 1
            self._changed.notify()
            # If the owner already uses all of its threads, one of them runs this call later.
            may_run = len(queue) + self._running[owner] <= self._per_owner
            if may_run and self._waiting > self._idle:
                self._start_thread()
        return await asyncio.wrap_future(future)

    def _start_thread(self) -> None:
        if self._threads < self._max_threads:
            threading.Thread(target=self._run_jobs, name=f"holdfast-{self._name}", daemon=True).start()
            self._threads += 1

    def _may_run(self, owner: str) -> bool:
        own = self._running[owner]
        free = self._max_threads - self._running.total() if self._is_shared else self._max_threads
        return own < min(self._per_owner, free)

    def _run_jobs(self) -> None:
        owner = None
        while (job := self._next_job(owner)) is not None:
            owner, future, call = job
            _run_and_settle(future, call)
            del job, future, call  # keep no result alive while waiting

    def _wake_other(self) -> None:
        """Wake or start a thread if another job may run now."""
        if not any(map(self._may_run, self._queues)):
            return
        if self._threads <= self._running.total():
            self._start_thread()
        else:
            self._changed.notify()

    def _next_job(self, finished: str | None) -> tuple[str, Future[Any], Callable[[], Any]] | None:
        """Wait for the next job; None if no job arrives for a while. `finished` is the owner of the job that has just ended."""
        with self._changed:
            if finished is not None:
                self._running[finished] -= 1
                if not self._running[finished]:
                    del self._running[finished]
            while True:
                for owner, queue in self._queues.items():
                    if self._may_run(owner):
                        future, call = queue.popleft()
                        self._waiting -= 1
                        del self._queues[owner]
                        if queue:
                            self._queues[owner] = queue  # at the end: another owner is next
                        self._running[owner] += 1
                        self._wake_other()
                        return owner, future, call
                self._idle += 1
                was_notified = self._changed.wait(_IDLE_SECONDS)
                self._idle -= 1
                if not was_notified and not self._queues:
                    self._threads -= 1
                    return None


_pools: WeakSet[WorkerThreads] = WeakSet()


def _reset_all() -> None:
    for pool in [*_pools]:
        pool._reset()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


async def run_in_slices(threads: WorkerThreads, steps: Generator[None, None, T], *, owner: str) -> T:
    """Run a generator to its end, in short slices, and return its result. A slice ends where the generator yields.

    Between two slices, the threads can work for other owners. If the caller is cancelled, the generator is closed at its
    next yield.
    """
    work = _SlicedWork(steps)
    try:
        while (done := await threads.run(work.run_slice, owner=owner)) is None:
            pass
        return done[0]
    finally:
        work.stop()


def _run_and_settle(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class _SlicedWork(Generic[T]):
    """A generator that runs in slices, in different threads."""

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self._is_stopped = False

    def run_slice(self) -> tuple[T] | None:
        """Run for one slice, and return the result in a tuple; None if there is more to do."""
        until = time.monotonic() + _SLICE_SECONDS
        try:
            while time.monotonic() < until and not self._is_stopped:
                next(self._steps)
        except StopIteration as end:
            return (end.value,)
        if self._is_stopped:
            self._steps.close()
        return None

    def stop(self) -> None:
        self._is_stopped = True
        with suppress(ValueError):  # a thread is running the generator, and will close it
            self._steps.close()
