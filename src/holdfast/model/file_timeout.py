"""Run functions that access files in separate threads and with a time limit, in case a file system does not respond."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads

T = TypeVar("T")

FILE_SECONDS = 5.0
_THREADS = WorkerThreads("file-timeout", threads=64, per_owner=4)


async def run_with_file_timeout(
    function: Callable[..., T], *args: Any, path: str, seconds: float = FILE_SECONDS
) -> T:
    """Run a function that accesses files at `path` in another thread. Raise `TIMEOUT` if it takes too long.

    The function cannot be stopped, so it keeps its thread until it returns. Calls with other paths use other threads.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _THREADS.run(function, *args, owner=path)
    except TimeoutError:
        raise HoldfastError(
            codes.TIMEOUT,
            f"{path[:200]!r} could not be accessed in {seconds:.0f} seconds.",
            hint="Check that its file system responds, then try again.",
        ) from None
