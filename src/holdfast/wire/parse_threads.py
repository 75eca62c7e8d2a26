"""Parse long messages in threads, so that parsing does not block the event loop."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.model.limits import Limits
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.charged_threads import run_charged
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.messages import Message, Raw, parse_line

T = TypeVar("T")

PARSE_THREADS = WorkerThreads("parse", threads=4, per_owner=2)
_SECONDS_PER_BYTE = 5e-9  # the approximate time to parse one byte of a long message


async def parse_in_thread(text: bytes | bytearray, limits: Limits, throttle: LoopThrottle) -> Message | None:
    """Parse a long message in a thread; None if it is blank."""
    return await run_in_parse_thread(parse_line, text, limits, throttle=throttle)


async def run_in_parse_thread(
    function: Callable[..., T], text: bytes | bytearray | Raw, *args: Any, throttle: LoopThrottle
) -> T:
    """Call a function that reads a long text, in a thread. The throttle's owner is charged for the time."""
    estimate = len(text) * _SECONDS_PER_BYTE
    return await run_charged(PARSE_THREADS, function, text, *args, throttle=throttle, estimate=estimate)
