"""The threads that parse long messages, so that the event loop is not blocked."""

from time import thread_time

from holdfast.model.limits import Limits
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.frame import Message, parse_line
from holdfast.wire.loop_throttle import LoopThrottle

LONG_BYTES = 64 * 1024
"""A longer message is parsed in a thread."""
PARSE_THREADS = WorkerThreads("parse", threads=4, per_owner=2)


async def parse_in_thread(
    text: bytes, limits: Limits, *, owner: str, throttle: LoopThrottle | None = None
) -> Message | None:
    """Parse a long message. The throttle counts the time: while a thread parses, it keeps the event loop waiting."""
    message, seconds = await PARSE_THREADS.run(_parse_timed, text, limits, owner=owner)
    if throttle is not None:
        throttle.add(seconds)
    return message


def _parse_timed(text: bytes, limits: Limits) -> tuple[Message | None, float]:
    began = thread_time()
    message = parse_line(text, limits)
    return message, thread_time() - began
