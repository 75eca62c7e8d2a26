"""What runs and what is open, looked up from outside."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def marked(mark: str) -> set[int]:
    """The processes that have this in their environment."""
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words and alive(int(folder.name)):
                found.add(int(folder.name))
    return found


def ours() -> set[int]:
    """The servers that this process has started, and what they have started."""
    return marked(f"tests_marker={os.getpid()}")


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def tasks() -> int:
    """How many tasks this loop has."""
    return len(asyncio.all_tasks())


def temporary_files() -> set[str]:
    """What lies in the folder for temporary files."""
    return set(os.listdir(tempfile.gettempdir()))


def kill(pid: int) -> None:
    """End a process as the kernel would when memory runs out."""
    os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for what sends no event."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
