"""Look up processes, descriptors, tasks and temporary files."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process is running. A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids_with_variable(variable: str) -> set[int]:
    """The processes with this variable in their environment."""
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if variable.encode() in variables and is_alive(int(folder.name)):
                found.add(int(folder.name))
    return found


def server_pids() -> set[int]:
    """The servers that this process has started, and their children."""
    return pids_with_variable(f"tests_marker={os.getpid()}")


def count_descriptors() -> int:
    """The number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))


def count_tasks() -> int:
    """The number of tasks in the event loop."""
    return len(asyncio.all_tasks())


def temporary_files() -> set[str]:
    """The names in the temporary folder."""
    return set(os.listdir(tempfile.gettempdir()))


def kill(pid: int) -> None:
    """Send SIGKILL, as the OOM killer does."""
    os.kill(pid, signal.SIGKILL)


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
