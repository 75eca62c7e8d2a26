"""Run a handler that is no coroutine beside the event loop.

Not in the loop's own pool: Python waits for the threads of a pool before it exits, and a handler that hangs would
keep a server alive whose host is gone.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

AT_ONCE = 64

_turns: "dict[asyncio.AbstractEventLoop, asyncio.Semaphore]" = {}


async def in_thread(function: Callable[..., T], **given: Any) -> T:
    """What the function returns or raises; when nobody waits any more it runs to its end unheard."""
    loop = asyncio.get_running_loop()
    turns = _turns_of(loop)
    await turns.acquire()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(set_: Callable[[Any], None], value: Any) -> None:
        turns.release()
        if not future.done():
            set_(value)

    def run() -> None:
        try:
            told = (tell, future.set_result, context.run(function, **given))
        except StopIteration:  # a future cannot carry it
            told = (tell, future.set_exception, RuntimeError("a handler raised StopIteration"))
        except BaseException as error:
            told = (tell, future.set_exception, error)
        with suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(*told)

    threading.Thread(target=run, daemon=True, name=f"tool-{getattr(function, '__name__', 'handler')}").start()
    return await future


def _turns_of(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    for known in [known for known in _turns if known.is_closed()]:
        del _turns[known]
    return _turns.setdefault(loop, asyncio.Semaphore(AT_ONCE))
