"""The threads in which blocking handlers and providers run."""

from collections.abc import Callable
from typing import Any

from holdfast.model.worker_threads import WorkerThreads

_MAX_THREADS = 128
_THREADS_PER_CALLER = 64  # at most; fewer while other callers need threads
_THREADS = WorkerThreads("tool", threads=_MAX_THREADS, per_owner=_THREADS_PER_CALLER)


async def run_in_thread(function: Callable[..., Any], arguments: dict[str, Any], *, owner: str = "") -> Any:
    """Call a blocking function in a thread. If the caller is cancelled, the call continues and its result is dropped."""
    return await _THREADS.run(_call, function, arguments, owner=owner)


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except (StopIteration, GeneratorExit, KeyboardInterrupt) as error:  # a future cannot carry them
        raise RuntimeError(f"a handler raised {type(error).__name__}") from error
