"""The process that owns a lease, identified across machines, reboots and reused pids."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process: its machine, the machine's boot, the pid namespace, its pid, and when it started."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine.partition('/')[0] or 'an unnamed machine'}"


@cache
def this_process() -> Owner:
    """The current process."""
    return Owner(
        machine=_machine(),
        boot=_read_text("/proc/sys/kernel/random/boot_id"),
        namespace=_read_link("/proc/self/ns/pid"),
        pid=os.getpid(),
        started=_start_time(os.getpid()) or "",
    )


# A forked child is another process, so it must not use the cached owner of its parent.
os.register_at_fork(after_in_child=this_process.cache_clear)


def is_dead(owner: Owner) -> bool | None:
    """Whether the owner is dead; None if this process cannot check that."""
    here = this_process()
    if owner.machine != here.machine:
        return None
    if owner.boot != here.boot:
        return True
    # The pids of another namespace, such as a container's, mean nothing here.
    if owner.namespace != here.namespace or not owner.started:
        return None
    return _start_time(owner.pid) != owner.started


def _machine() -> str:
    return f"{platform.node()}/{_read_text('/etc/machine-id')}"


def _start_time(pid: int) -> str | None:
    """When a process started, as the system reports it. None if it has ended; "" if that is not known."""
    if sys.platform == "linux":
        stat = _read_text(f"/proc/{pid}/stat")
        fields = stat.rpartition(")")[2].split()
        return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    try:
        # Without /proc, ask ps: it has the same options on macOS and the BSDs.
        answer = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
