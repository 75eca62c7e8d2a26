"""Let the tasks of one owner take turns on the event loop, so that many tasks delay other owners little more than one task does."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from time import monotonic
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_TURN_SECONDS = 0.001  # how long the tasks of an owner run in one iteration of the event loop
_MAX_WOKEN = 32  # tasks that get a turn in one iteration of the event loop
_FIRST_GUESS = 0.0002  # seconds; about the time that a task runs until it waits again


class TaskTurns:
    """The turns of one owner's tasks.

    If the tasks have run for a millisecond in one iteration of the event loop, the other tasks that are ready wait for the next
    iterations, in order. The event loop is never idle while a task waits for its turn.
    """

    __slots__ = ("_average", "_is_scheduled", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = _TURN_SECONDS  # the seconds left in this iteration of the event loop
        self._average = _FIRST_GUESS  # a moving average of the seconds that a task runs until it waits again
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def must_wait(self) -> bool:
        """Whether a task must wait for its turn before it runs."""
        return self._left <= 0 or bool(self._waiting)

    def wait(self) -> "asyncio.Future[None]":
        """A future that is done when the task may run."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        return turn

    def charge(self, seconds: float) -> None:
        """Count the time that a task has run."""
        self._left -= seconds
        self._average += (seconds - self._average) / 16
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        """Give a turn to as many tasks as will probably run for a millisecond together."""
        self._is_scheduled = False
        self._left = _TURN_SECONDS
        turns_left = min(_MAX_WOKEN, 1 + int(_TURN_SECONDS / max(self._average, 1e-6)))
        while self._waiting and turns_left:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                turns_left -= 1
        if self._waiting:
            self._schedule()


@coroutine
def run_in_turns(work: Coroutine[Any, Any, T], find_turns: Callable[[], TaskTurns]) -> Generator[Any, Any, T]:
    """Await the work. Before it starts, and each time before it continues, wait for a turn.

    `find_turns` returns the turns of the work's owner. The owner can change, for example when the caller of a request becomes known.
    """
    steps = work.__await__()
    error: BaseException | None = None
    while True:
        if error is None and (turns := find_turns()).must_wait():
            try:
                yield from turns.wait()
            except asyncio.CancelledError as cancelled:
                error = cancelled
        began = monotonic()
        try:
            awaited = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            error = None
            find_turns().charge(monotonic() - began)
        try:
            yield awaited
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as thrown:  # a cancellation, mostly
            error = thrown


current_turns: ContextVar[Callable[[], TaskTurns] | None] = ContextVar("holdfast_task_turns", default=None)
"""A function that returns the turns of the request that the current task works for; None if there are no turns."""


async def run_in_current_turns(work: Coroutine[Any, Any, T]) -> T:
    """Await the work in the turns of the current request. Use this if a request runs a part of its work in another task."""
    find_turns = current_turns.get()
    return await (work if find_turns is None else run_in_turns(work, find_turns))
