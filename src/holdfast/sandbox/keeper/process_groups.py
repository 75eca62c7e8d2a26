"""Start servers in process groups, on platforms without child subreapers (macOS)."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from functools import partial

from holdfast.sandbox.keeper.child import GONE_SECONDS, Child, Pipes
from holdfast.sandbox.keeper.spawn_request import SpawnRequest, spawn_error


class ProcessGroups:
    """Starts each server in a process group of its own, and ends the whole group.

    A server that leaves its group is not ended. If the host is killed, no server is ended.
    """

    pid: int | None = None

    def __init__(self) -> None:
        self._groups: set[_ProcessGroup] = set()

    def open(self) -> None:
        """Do nothing: there is no keeper process to start."""

    async def close(self) -> None:
        """End every server that still runs."""
        for group in tuple(self._groups):
            group.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_SECONDS):
                for group in tuple(self._groups):
                    await group.wait_gone()

    async def start(self, request: SpawnRequest) -> Child:
        """Start a process in a new group."""
        with Pipes() as pipes:
            stdin, stdout, stderr = pipes.server_fds
            folder = request.cwd_fd
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as the program is executed
                    request.argv, env=request.env, cwd=request.cwd if folder is None else None, stdin=stdin, stdout=stdout,
                    stderr=stderr, start_new_session=True, preexec_fn=None if folder is None else partial(os.fchdir, folder),  # noqa: PLW1509 - one system call
                )  # fmt: skip
            except OSError as error:
                step = "chdir" if error.filename == request.cwd else "exec"
                raise spawn_error(request, step, error.errno, str(error)) from None
            except ValueError as error:
                raise spawn_error(request, "exec", None, str(error)) from None
            return Child(process.pid, pipes.keep(), _ProcessGroup(process, self._groups))


class _ProcessGroup:
    """The `ProcessHandle` of one group. When the server, its leader, exits, the other processes of the group get SIGKILL."""

    def __init__(self, process: subprocess.Popen[bytes], groups: "set[_ProcessGroup]") -> None:
        self._process = process
        self._groups = groups
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._callbacks: list[Callable[[], None]] = []
        groups.add(self)
        threading.Thread(target=self._wait_in_thread, daemon=True).start()

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def wait_gone(self) -> None:
        await self.wait()

    def end(self, grace: float) -> None:
        if not self._exit.done():
            self._timers.append(self._loop.call_later(grace, self._signal, signal.SIGTERM))
            self._timers.append(self._loop.call_later(2 * grace, self._signal, signal.SIGKILL))

    def terminate(self) -> None:
        self._signal(signal.SIGKILL)

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._exit.done():
            callback()
        else:
            self._callbacks.append(callback)

    def _signal(self, number: int) -> None:
        # The leader is reaped only in `_on_exit`, so the number cannot belong to another group before that.
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _wait_in_thread(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._signal(signal.SIGKILL)
        for timer in self._timers:
            timer.cancel()
        self._groups.discard(self)
        if not self._exit.done():
            self._exit.set_result(self._process.wait())
        for callback in self._callbacks:
            callback()
