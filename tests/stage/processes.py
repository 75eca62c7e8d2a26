"""The descendants of a process, and whether they still run."""

import time
from collections.abc import Callable
from pathlib import Path


class Descendants:
    """The children of a process, their children and so on, even after their parents have ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._started = {pid: _start_time(pid)}

    def look(self) -> None:
        parents = {
            int(path.name): _parent(int(path.name))
            for path in Path("/proc").iterdir()
            if path.name.isdecimal()
        }
        while found := [
            pid for pid, parent in parents.items() if parent in self._started and pid not in self._started
        ]:
            self._started |= {pid: _start_time(pid) for pid in found}

    def running(self) -> dict[int, str]:
        """The commands of the descendants that still run, by process id."""
        self.look()
        return {
            pid: command(pid)
            for pid, started in self._started.items()
            if pid != self._pid and started and _start_time(pid) == started and not _is_zombie(pid)
        }

    def commands(self) -> list[str]:
        return list(self.running().values())


def command(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def nice_value(pid: int) -> int:
    return int(_fields(pid)[16])


def wait_until(condition: Callable[[], bool], seconds: float, explain: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _start_time(pid: int) -> str:
    fields = _fields(pid)
    return fields[19] if fields else ""


def _is_zombie(pid: int) -> bool:
    fields = _fields(pid)
    return not fields or fields[0] in "ZX"


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
