"""Whether code runs in the event loop that a host or a session belongs to."""

import asyncio

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_loop(what: str, own: asyncio.AbstractEventLoop | None) -> None:
    """Raise if this code runs in another event loop than the one in which `what` (a host or a session) was opened."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if own is None or running is own:
        return
    if own.is_closed():
        advice = "That loop has ended: use asyncio.run(…) once, for all that uses the host."
    else:
        advice = "From this one, use asyncio.run_coroutine_threadsafe(…, loop) with that loop."
    raise HoldfastError(
        codes.BAD_ARGUMENT,
        f"The {what} was opened in another event loop, and can only be used in that one. {advice} "
        "Code without `await` can use holdfast.sync from any thread.",
    )
