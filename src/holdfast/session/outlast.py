"""Work that is finished whatever happens to whoever waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def outlast(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the end of the work even when cancelled, any number of times; only then does the cancellation go on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what the waiter hears of
        raise cancelled
    return task.result()
