"""Work that is finished even if the task that waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Run the work to its end; a cancellation of the caller is raised only after that."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller gets the cancellation instead
        raise cancelled
    return task.result()


async def wait_done(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended. Its exception, if any, is not raised."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # marks it as retrieved
