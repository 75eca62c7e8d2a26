"""Who holds a session: a process that can be told apart from every other one, and from itself after a restart."""

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
    """The process we are. A fork asks again."""
    return Owner(
        machine=_machine(),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        namespace=_link("/proc/self/ns/pid"),
        pid=os.getpid(),
        started=_started(os.getpid()) or "",
    )


os.register_at_fork(after_in_child=this_process.cache_clear)


def is_gone(owner: Owner) -> bool | None:
    """Whether the owner is dead for sure; None when that cannot be seen from here."""
    here = this_process()
    if owner.machine != here.machine:
        return None
    if owner.boot != here.boot:
        return True
    # The pids of another namespace mean nothing here: a container beside us is like another machine.
    if owner.namespace != here.namespace or not owner.started:
        return None
    return _started(owner.pid) != owner.started


def _machine() -> str:
    return f"{platform.node()}/{_read('/etc/machine-id')}"


def _started(pid: int) -> str | None:
    """When the process started, in its system's own words; None when there is no such process, or only its corpse."""
    if sys.platform == "linux":
        stat = _read(f"/proc/{pid}/stat")
        fields = stat.rpartition(")")[2].split()
        return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    try:
        # Where there is no /proc, ps knows: POSIX gives it on macOS and the BSDs alike.
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


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
