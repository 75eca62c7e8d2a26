"""Starts the first browser of a server before a call needs it, so that the call waits less."""

import asyncio
import contextlib

from holdfast.builtin.stage.launch import BrowserProcess, launch, prepare
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.toolkit import ToolError


class FirstBrowser:
    """Starts the first browser as early as `LaunchOptions.early` says, and every later one when it is needed."""

    def __init__(self, options: LaunchOptions, starter: KeeperClient | None = None) -> None:
        """`starter` is the client of the keeper process that starts the first browser; `discard` closes it. Without it, a new keeper process is started."""
        self._options = options
        self._starter = starter
        self._starting: asyncio.Task[BrowserProcess] | None = None

    def begin(self) -> None:
        """Start what `LaunchOptions.early` names, in the background."""
        match self._options.early:
            case "nothing":
                return
            case "sandbox":
                work = prepare(self._options, self._starter)
            case "browser":
                work = launch(self._options, self._starter)
        self._starting = asyncio.create_task(work)

    async def launch(self) -> BrowserProcess:
        """Return a running browser: the first one if no call has used it, else a new one. Raises NO_BROWSER or LAUNCH_FAILED."""
        starting, self._starting = self._starting, None
        if starting is not None:
            with contextlib.suppress(ToolError):  # the cause may be gone by now: try again
                process = await starting
                if await _try_start(process):
                    return process
        return await launch(self._options)

    async def discard(self) -> None:
        """End the first browser if no call has used it."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().close()
        if self._starter is not None:
            await self._starter.close()


async def _try_start(process: BrowserProcess) -> bool:
    """Start the browser. If it does not start, close it and return False."""
    try:
        await process.start()
    except BaseException as error:
        await process.close()
        if not isinstance(error, ToolError):
            raise
        return False
    return True
