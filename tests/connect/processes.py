"""Look up processes, descriptors, tasks and temporary files."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def marked(mark: str) -> set[int]:
    """The processes with this variable in their environment."""
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in variables and alive(int(folder.name)):
                found.add(int(folder.name))
    return found


def ours() -> set[int]:
    """The servers that this process has started, and their children."""
    return marked(f"tests_marker={os.getpid()}")


def descriptors() -> int:
    """The number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))


def tasks() -> int:
    """The number of tasks of the event loop."""
    return len(asyncio.all_tasks())


def temporary_files() -> set[str]:
    """The names in the temporary folder."""
    return set(os.listdir(tempfile.gettempdir()))


def kill(pid: int) -> None:
    """Send SIGKILL, as the OOM killer does."""
    os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
