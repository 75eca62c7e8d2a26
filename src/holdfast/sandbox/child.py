"""A started server: our ends of its pipes, and how to end it."""

from collections.abc import Callable
from typing import Protocol

from holdfast.sandbox.pipes import Files


class Hold(Protocol):
    """What keeps hold of a server's processes: a warden, or a process group."""

    async def exited(self) -> int:
        """Wait for the server itself to exit; its exit code, negative when a signal ended it."""
        ...

    async def gone(self) -> None:
        """Wait until nothing of the server is left."""
        ...

    def end(self, grace: float) -> None:
        """Have it ended: SIGTERM to all of it after the grace, SIGKILL after the same time again."""
        ...

    def let_go(self) -> None:
        """Have it ended at once."""
        ...

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call this when nothing of the server is left."""
        ...


class Child:
    """One server's process. The three files are the caller's to close."""

    def __init__(self, pid: int, files: Files, hold: Hold) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = files
        self._hold = hold

    async def wait(self) -> int:
        """Wait for the server to exit; its exit code, negative when a signal ended it."""
        return await self._hold.exited()

    async def end(self, grace: float) -> None:
        """Give it this long to go by itself, then ask all of it, then make it; return when nothing is left.

        Close its standard input first: that is how a server is told that nobody needs it any more.
        """
        self._hold.end(grace)
        await self._hold.gone()

    def let_go(self) -> None:
        """Have it ended at once, without waiting for that."""
        self._hold.let_go()

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call this when nothing of the server is left."""
        self._hold.when_gone(call)

    def close(self) -> None:
        """Close our ends of the pipes, for a caller that has not handed them on."""
        for file in (self.stdin, self.stdout, self.stderr):
            file.close()
