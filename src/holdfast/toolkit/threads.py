"""Run blocking handlers in threads, a limited number for each caller."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.model.worker_threads import WorkerThreads

T = TypeVar("T")

MAX_THREADS = 128
THREADS_PER_CALLER = 64  # if nobody else needs them

_THREADS = WorkerThreads("tool", threads=MAX_THREADS, per_owner=THREADS_PER_CALLER)


async def run_in_thread(function: Callable[..., T], arguments: dict[str, Any], *, owner: str) -> T:
    """Run the function in a thread. If the caller is cancelled, the thread continues and its result is dropped."""
    return await _THREADS.run(_call, function, arguments, owner=owner)


def _call(function: Callable[..., T], arguments: dict[str, Any]) -> T:
    try:
        return function(**arguments)
    except StopIteration:  # a future cannot carry it
        raise RuntimeError("a handler raised StopIteration") from None
