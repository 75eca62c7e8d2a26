"""The first browser of a server. Parts of it start before a call needs it, so that the call does not wait for them."""

import asyncio
import contextlib

from holdfast.builtin.stage.launch import BrowserProcess, launch, prepare
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.toolkit import ToolError


class FirstBrowser:
    """Starts the first browser as early as `LaunchOptions.early` says, and every later one when it is needed."""

    def __init__(self, options: LaunchOptions, starter: KeeperClient | None = None) -> None:
        """`starter` starts the browser that `begin` starts; it may be open already. `discard` closes it."""
        self._options = options
        self._starter = starter
        self._beginning: asyncio.Task[BrowserProcess] | None = None

    def begin(self) -> None:
        """Start what `LaunchOptions.early` names, in the background."""
        match self._options.early:
            case "nothing":
                return
            case "sandbox":
                work = prepare(self._options, self._starter)
            case "browser":
                work = launch(self._options, self._starter)
        self._beginning = asyncio.create_task(work)

    async def launch(self) -> BrowserProcess:
        """A running browser: the first one if no call has used it, else a new one. Raises NO_BROWSER or LAUNCH_FAILED."""
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            with contextlib.suppress(ToolError):  # the cause may be gone by now: try again
                process = await beginning
                if await _try_start(process):
                    return process
        return await launch(self._options)

    async def discard(self) -> None:
        """End the first browser if no call has used it."""
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.cancel()
            await asyncio.wait([beginning])
            if not beginning.cancelled() and beginning.exception() is None:
                await beginning.result().close()
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
