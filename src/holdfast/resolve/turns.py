"""Long work on the event loop, cut into turns: whoever else waits is never kept for long."""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

_TURN_SECONDS = 0.001


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Do the steps, and give way for a millisecond after every millisecond of them.

    To sleep for no time would let the loop's other tasks run, but no thread: the store's writer, which every session
    waits for, would have to ask for the interpreter again and again, at 5 ms each time.
    """
    until = time.monotonic() + _TURN_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if time.monotonic() > until:
            await asyncio.sleep(_TURN_SECONDS)
            until = time.monotonic() + _TURN_SECONDS
