"""Servers in process groups of their own: what is left where no process can adopt orphans (macOS)."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable

from holdfast.sandbox.child import Child
from holdfast.sandbox.failure import could_not_start
from holdfast.sandbox.pipes import Pipes
from holdfast.sandbox.program import Program


class Groups:
    """Starts each server in a group of its own, and ends the group with it.

    A server that leaves its group, and every server of a host that is killed, is out of reach.
    """

    pid: int | None = None

    def __init__(self) -> None:
        self._held: set[_Group] = set()

    def open(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """End every server that is left."""
        for group in tuple(self._held):
            group.let_go()
        for group in tuple(self._held):
            await group.gone()

    async def start(self, program: Program) -> Child:
        """Start a program as it stands."""
        with Pipes() as pipes:
            stdin, stdout, stderr = pipes.theirs
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as the program is executed
                    program.argv, env=program.env, cwd=program.cwd, stdin=stdin, stdout=stdout, stderr=stderr,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                stage = "folder" if error.filename == program.cwd else "program"
                raise could_not_start(program, stage, error.errno, str(error)) from None
            except ValueError as error:
                raise could_not_start(program, "program", None, str(error)) from None
            return Child(process.pid, pipes.keep(), _Group(process, self._held))


class _Group:
    def __init__(self, process: subprocess.Popen[bytes], held: "set[_Group]") -> None:
        self._process = process
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._last: list[Callable[[], None]] = []
        held.add(self)
        threading.Thread(target=self._wait, daemon=True).start()

    async def exited(self) -> int:
        return await asyncio.shield(self._exit)

    async def gone(self) -> None:
        await self.exited()

    def end(self, grace: float) -> None:
        if not self._exit.done():
            self._timers.append(self._loop.call_later(grace, self._signal, signal.SIGTERM))
            self._timers.append(self._loop.call_later(2 * grace, self._signal, signal.SIGKILL))

    def let_go(self) -> None:
        self._signal(signal.SIGKILL)

    def when_gone(self, call: Callable[[], None]) -> None:
        if self._exit.done():
            call()
        else:
            self._last.append(call)

    def _signal(self, number: int) -> None:
        # The group keeps its number as long as anything is in it, and its leader is not reaped before.
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._signal(signal.SIGKILL)
        for timer in self._timers:
            timer.cancel()
        self._held.discard(self)
        if not self._exit.done():
            self._exit.set_result(self._process.wait())
        for call in self._last:
            call()
