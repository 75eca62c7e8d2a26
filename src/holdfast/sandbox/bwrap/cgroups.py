"""Control groups (cgroups) for one server, where this host may create them."""

import os
from pathlib import Path

from holdfast.model.process import Quota
from holdfast.sandbox.keeper.spawn_request import Cgroup


def plan_cgroups(quota: Quota, *, processes: bool, root: Path = Path("/")) -> tuple[Cgroup, ...]:
    """The groups to create for a server: for its total memory, and its `processes` where rlimits do not count.

    Empty if this host may create none; then only the limits per process hold.
    """
    hierarchies = _parse_hierarchies((root / "proc/self/cgroup").read_text(encoding="utf-8"))
    planned: list[Cgroup] = []
    if (unified := hierarchies.get("")) is not None:
        limits = _unified_limits(quota, processes=processes)
        for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
            parent = _parent(root / mount, unified)
            controllers = _read_words(parent / "cgroup.subtree_control")
            usable = {name: value for name, value in limits.items() if name.partition(".")[0] in controllers}
            if usable and _is_writable(parent):
                planned.append(Cgroup(parent=str(parent), limits=usable))
                break
    has_pids = any("pids.max" in group.limits for group in planned)
    if processes and not has_pids and "pids" in hierarchies:
        parent = root / "sys/fs/cgroup/pids" / hierarchies["pids"].lstrip("/")
        if _is_writable(parent):
            planned.append(Cgroup(parent=str(parent), limits={"pids.max": str(quota.processes)}))
    return tuple(planned)


def _unified_limits(quota: Quota, *, processes: bool) -> dict[str, str]:
    memory = {"memory.max": str(quota.memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
    return {**memory, "pids.max": str(quota.processes)} if processes else memory


def _parse_hierarchies(text: str) -> dict[str, str]:
    """This process's group in each hierarchy, by controller; the unified hierarchy's key is empty."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), group)
    return groups


def _parent(mount: Path, group: str) -> Path:
    """A group with processes cannot have limited child groups, so new groups become its siblings."""
    return mount / group.strip("/").rpartition("/")[0]


def _read_words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
