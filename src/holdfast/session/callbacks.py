"""Functions that an application passes, sync or async."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

from holdfast.connect.server_messages import OnProgress
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

ProgressCallback: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[object] | object]
"""Called with the params of each progress notification."""

_MAX_WAITING = 100  # progress notifications that wait for the function; older ones are dropped
_THREADS = WorkerThreads("callbacks", threads=32)


def check_callback(name: str, function: object) -> None:
    """Raise BAD_ARGUMENT unless the function can be called with one argument."""
    if not callable(function):
        raise _refused(name, f"it is a value of the type {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise _refused(name, f"{_describe(function)}{signature}: {error}") from None


async def run_callback(function: Callable[[Any], Any], argument: object) -> Any:
    """Call the function, and return its result. A sync function runs in a thread, because it may block."""
    if _is_async(function):
        return await function(argument)
    result = await _THREADS.run(function, argument)
    return await result if inspect.isawaitable(result) else result


async def run_callback_on_loop(function: Callable[[Any], Any], argument: object) -> None:
    """Call the function on the event loop, and wait for it. What it raises is logged."""
    try:
        result = function(argument)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("a callback failed: %s", _describe(function), extra={"function": _describe(function)})


class ProgressQueue:
    """Passes the progress notifications of one call to an application's function, one after another."""

    def __init__(self, function: ProgressCallback) -> None:
        check_callback("on_progress", function)
        self._function = function
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=_MAX_WAITING)
        self._task: asyncio.Task[None] | None = None

    def receive(self, params: Mapping[str, Any]) -> None:
        self._waiting.append(params)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Wait until the function has handled all progress that was received."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            await run_callback_on_loop(self._function, self._waiting.popleft())


def make_progress_queue(function: ProgressCallback | None) -> tuple[OnProgress | None, ProgressQueue | None]:
    """The function that receives the progress notifications, and the `ProgressQueue` to wait for after the call."""
    if function is None:
        return None, None
    queue = ProgressQueue(function)
    return queue.receive, queue


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        cast("object", getattr(function, "__call__", None))  # noqa: B004
    )


def _describe(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _refused(name: str, why: str) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT, f"`{name}` must be a function of one argument, sync or async; {why}."
    )
