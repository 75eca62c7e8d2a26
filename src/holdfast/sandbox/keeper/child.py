"""A started server process: its three pipes, and how to end it."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from types import TracebackType
from typing import BinaryIO, Protocol, Self, cast

from holdfast.sandbox.view import SandboxView

log = logging.getLogger(__name__)

GONE_SECONDS = 40.0
"""How long to wait until killed processes have ended. A supervisor gives up after 5 seconds, and its cleanup takes at most 20."""
PipeFiles = tuple[BinaryIO, BinaryIO, BinaryIO]
"""The host's ends of a server's standard input, output and error."""


class ProcessHandle(Protocol):
    """Controls all processes of one server: through its supervisor, or as a process group."""

    async def wait(self) -> int:
        """Wait until the server itself exits; return its exit code, negative if a signal ended it."""
        ...

    async def wait_gone(self) -> None:
        """Wait until no process of the server is left, or until the supervisor reports that some cannot be ended."""
        ...

    def end(self, grace: float) -> None:
        """Send SIGTERM to all processes of the server after `grace` seconds, and SIGKILL after `grace` more."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to all processes of the server now, and SIGKILL after one second. Does not wait. A process group gets SIGKILL at once."""
        ...

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` once no process of the server is left."""
        ...


class Child:
    """One server's process. The caller closes its pipes with `close`."""

    def __init__(self, pid: int, files: PipeFiles, handle: ProcessHandle) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = files
        self._handle = handle
        self.view: SandboxView | None = None
        """What the server sees of the machine. None if the server is not confined."""

    async def wait(self) -> int:
        """Wait until the server exits; return its exit code, negative if a signal ended it."""
        return await self._handle.wait()

    async def end(self, grace: float) -> None:
        """Give the server `grace` seconds to exit, then SIGTERM, then SIGKILL; return when no process is left.

        Close its standard input first: that asks a server to exit. Also return if the supervisor reports, 5 seconds after SIGKILL,
        that a process cannot be ended, and after `2 * grace + GONE_SECONDS` in any case. The locks of the server's roots then stay
        until its last process has ended.
        """
        self._handle.end(grace)
        try:
            async with asyncio.timeout(2 * grace + GONE_SECONDS):
                await self._handle.wait_gone()
        except TimeoutError:
            log.warning("server has not ended in time", extra={"server_pid": self.pid})

    def terminate(self) -> None:
        """End all processes of the server, as `ProcessHandle.terminate` says. Does not wait."""
        self._handle.terminate()

    def terminate_quickly(self) -> None:
        """Send SIGTERM to all processes of the server now, and SIGKILL within 0.1 seconds. Does not wait."""
        self._handle.end(0.0)

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` once no process of the server is left."""
        self._handle.on_gone(callback)

    def close(self) -> None:
        """Close the host's ends of all three pipes."""
        for file in (self.stdin, self.stdout, self.stderr):
            file.close()


class Pipes:
    """Three pipes to a server that is about to start. Leaving the block closes every end, except those that `keep` returned."""

    def __init__(self) -> None:
        self._server_stack = ExitStack()
        self._host_stack = ExitStack()
        self.server_fds: tuple[int, int, int] = (-1, -1, -1)

    def __enter__(self) -> Self:
        try:
            stdin, stdin_file = self._open_pipe(host_writes=True)
            stdout, stdout_file = self._open_pipe(host_writes=False)
            stderr, stderr_file = self._open_pipe(host_writes=False)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.server_fds = (stdin, stdout, stderr)
        self._files = (stdin_file, stdout_file, stderr_file)
        return self

    def close_server_ends(self) -> None:
        """Close the server's ends; call it once they have been sent to the supervisor."""
        self._server_stack.close()

    def keep(self) -> PipeFiles:
        """Return the host's ends, which stay open after the block."""
        self._host_stack.pop_all()
        return self._files

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server_stack.close()
        self._host_stack.close()

    def _open_pipe(self, *, host_writes: bool) -> tuple[int, BinaryIO]:
        read_end, write_end = os.pipe()
        server_fd, host_fd = (read_end, write_end) if host_writes else (write_end, read_end)
        self._server_stack.callback(os.close, server_fd)
        file = self._host_stack.enter_context(FileIO(host_fd, "wb" if host_writes else "rb"))
        return server_fd, cast(BinaryIO, file)
