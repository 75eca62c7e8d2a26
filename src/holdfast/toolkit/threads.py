"""Run blocking handlers in daemon threads.

The event loop's thread pool is not used: Python waits for the threads of a pool before it exits, so a handler that hangs
would keep the server alive after its host has ended.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 64

_slots: "dict[asyncio.AbstractEventLoop, asyncio.Semaphore]" = {}


async def run_in_thread(function: Callable[..., T], **arguments: Any) -> T:
    """Run the function in a thread. If the caller is cancelled, the thread continues and its result is dropped."""
    loop = asyncio.get_running_loop()
    slots = _slots_for(loop)
    await slots.acquire()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def finish(set_outcome: Callable[[Any], None], value: Any) -> None:
        slots.release()
        if not future.done():
            set_outcome(value)

    def run() -> None:
        try:
            outcome = (finish, future.set_result, context.run(function, **arguments))
        except StopIteration:  # a future cannot carry it
            outcome = (finish, future.set_exception, RuntimeError("a handler raised StopIteration"))
        except BaseException as error:
            outcome = (finish, future.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(*outcome)

    threading.Thread(target=run, daemon=True, name=f"tool-{getattr(function, '__name__', 'handler')}").start()
    return await future


def _slots_for(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    for known in [known for known in _slots if known.is_closed()]:
        del _slots[known]
    return _slots.setdefault(loop, asyncio.Semaphore(MAX_THREADS))
