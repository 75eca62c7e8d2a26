"""The threads that parse long messages, so that they do not block the event loop."""

from collections.abc import Callable
from time import thread_time
from typing import Any, TypeVar

from holdfast.model.limits import Limits
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.frame import Message, Raw, parse_line
from holdfast.wire.loop_throttle import LoopThrottle

T = TypeVar("T")

PARSE_THREADS = WorkerThreads("parse", threads=4, per_owner=2)


_SECONDS_PER_BYTE = 5e-9  # about the time to parse a long message


async def parse_in_thread(text: bytes | bytearray, limits: Limits, throttle: LoopThrottle) -> Message | None:
    """Parse a long message, in a thread."""
    return await run_in_parse_thread(parse_line, text, limits, throttle=throttle)


async def run_in_parse_thread(
    function: Callable[..., T], text: bytes | bytearray | Raw, *args: Any, throttle: LoopThrottle
) -> T:
    """Call a function that reads a long text, in a thread. The throttle's owner is charged for the time.

    The thread slows the event loop (GIL). An estimate of the time is charged at once, so that an owner's connections do not
    all begin at the same time.
    """
    estimate = len(text) * _SECONDS_PER_BYTE
    throttle.charge(estimate)
    result, seconds = await PARSE_THREADS.run(_run_timed, function, text, *args, owner=throttle.owner)
    throttle.charge(seconds - estimate)
    return result


def _run_timed(function: Callable[..., T], *args: Any) -> tuple[T, float]:
    began = thread_time()
    result = function(*args)
    return result, thread_time() - began
