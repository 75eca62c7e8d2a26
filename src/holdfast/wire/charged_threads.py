"""Run a function in a thread, and charge the owner of a throttle for its time."""

from collections.abc import Callable
from time import thread_time
from typing import Any, TypeVar

from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.loop_throttle import LoopThrottle

T = TypeVar("T")


async def run_charged(
    threads: WorkerThreads, function: Callable[..., T], *args: Any, throttle: LoopThrottle, estimate: float
) -> T:
    """Call a function in a thread of the throttle's owner.

    Because of the GIL, the thread slows the event loop, so the owner is charged for its processor time. `estimate` (in seconds)
    is charged at once, so that not all work of an owner begins at the same time.
    """
    throttle.charge(estimate)
    result, seconds = await threads.run(_run_timed, function, *args, owner=throttle.owner)
    throttle.charge(seconds - estimate)
    return result


def _run_timed(function: Callable[..., T], *args: Any) -> tuple[T, float]:
    """Call the function. Return its result, and the processor time that it took."""
    began = thread_time()
    result = function(*args)
    return result, thread_time() - began
