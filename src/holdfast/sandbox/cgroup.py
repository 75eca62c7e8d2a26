"""Control groups for one server, where the machine lets us make them."""

import os
from pathlib import Path

from holdfast.model.launch import Quota
from holdfast.sandbox.program import Cgroup


def groups(quota: Quota, *, processes: bool, root: Path = Path("/")) -> tuple[Cgroup, ...]:
    """The groups that hold a server to its quota: its memory in all, and its processes where rlimits do not count.

    Empty where there are none for us; then limits per process are all there is.
    """
    hierarchies = _hierarchies((root / "proc/self/cgroup").read_text(encoding="utf-8"))
    found: list[Cgroup] = []
    if (unified := hierarchies.get("")) is not None:
        limits = _unified_limits(quota, processes=processes)
        for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
            parent = _parent(root / mount, unified)
            able = _words(parent / "cgroup.subtree_control")
            wanted = {name: value for name, value in limits.items() if name.partition(".")[0] in able}
            if wanted and _ours(parent):
                found.append(Cgroup(parent=str(parent), limits=wanted))
                break
    has_pids = any("pids.max" in group.limits for group in found)
    if processes and not has_pids and "pids" in hierarchies:
        parent = root / "sys/fs/cgroup/pids" / hierarchies["pids"].lstrip("/")
        if _ours(parent):
            found.append(Cgroup(parent=str(parent), limits={"pids.max": str(quota.processes)}))
    return tuple(found)


def _unified_limits(quota: Quota, *, processes: bool) -> dict[str, str]:
    memory = {"memory.max": str(quota.memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
    return {**memory, "pids.max": str(quota.processes)} if processes else memory


def _hierarchies(text: str) -> dict[str, str]:
    """Our own place in each hierarchy, by controller; the unified one has no name."""
    places: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, place = line.split(":", 2)
        places |= dict.fromkeys(controllers.split(","), place)
    return places


def _parent(mount: Path, place: str) -> Path:
    """A group with processes in it cannot have limited groups below it: ours are made beside it."""
    return mount / place.strip("/").rpartition("/")[0]


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _ours(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
