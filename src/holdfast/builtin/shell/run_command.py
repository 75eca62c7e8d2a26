"""Runs one command with limits on its time and output, and ends all of its processes afterwards."""

import asyncio
import contextlib

from holdfast.model.door import CommandResult, ShellCommand
from holdfast.model.loop_pipes import connect_read_pipe
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper

# The command is an argument of this script, so that it needs no quoting. Its standard error goes to its standard output.
_SCRIPT = 'exec 2>&1; exec /bin/sh -c "$1"'
_DRAIN_SECONDS = 0.5  # how long to wait for the last output, if a background process keeps the pipe open
_LEFT_OUT = "\n… {count} bytes of output are left out …\n"


def shell_arguments(command: str) -> tuple[str, ...]:
    """Return the argument list of the process that runs this command."""
    return ("/bin/sh", "-c", _SCRIPT, "sh", command)


async def run_command(keeper: Keeper, spec: ProcessSpec, command: ShellCommand) -> CommandResult:
    """Start the process, wait until it ends, and return what it wrote. All processes that it started are ended, too."""
    child = await keeper.spawn(spec)
    output = _Output(command.output_bytes)
    try:
        child.stdin.close()
        child.stderr.close()
        transport, _ = await connect_read_pipe(lambda: output, child.stdout)
        try:
            exit_code, timed_out = await _wait(child, output, command.seconds)
        finally:
            transport.close()
    finally:
        child.close()
        await _end(child)
    return CommandResult(
        output=output.text(), exit_code=exit_code, timed_out=timed_out, truncated=output.is_truncated
    )


async def _wait(child: Child, output: "_Output", seconds: float) -> tuple[int | None, bool]:
    """Return the exit code, and whether the time ran out. The exit code is None if the time ran out, or if a signal ended the command."""
    try:
        async with asyncio.timeout(seconds):
            status = await child.wait()
    except TimeoutError:
        return None, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            await output.ended.wait()
    return (status if status >= 0 else None), False


async def _end(child: Child) -> None:
    """End all processes of the command. Finishes even if the caller is cancelled."""
    ending = asyncio.ensure_future(child.end(0.0))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


class _Output(asyncio.Protocol):
    """Keeps the beginning and the end of what a command writes."""

    def __init__(self, limit: int) -> None:
        self.ended = asyncio.Event()
        self._head_limit = limit * 2 // 3
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def is_truncated(self) -> bool:
        return self._total > self._head_limit + self._tail_limit

    def data_received(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:  # not each time: cutting copies what remains
            del self._tail[: -self._tail_limit]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def text(self) -> str:
        tail = self._tail[-self._tail_limit :] if self._tail_limit else bytearray()
        left_out = self._total - len(self._head) - len(tail)
        between = _LEFT_OUT.format(count=left_out).encode() if left_out else b""
        return (bytes(self._head) + between + bytes(tail)).decode(errors="replace")
