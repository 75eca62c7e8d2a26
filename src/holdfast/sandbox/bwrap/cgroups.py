"""Choose the control groups (cgroups) of one server."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.model.quota import Quota
from holdfast.sandbox.keeper.spawn_request import Cgroup

# The names of the outer groups. Version 2 has the second one for servers whose priority is not lowered.
_OUTER = "holdfast-confined"
_OUTER_NORMAL_PRIORITY = "holdfast-foreground"
_TCP_DIVISOR = 8  # TCP buffers, which version 1 counts separately, may take an eighth of a server's memory


def plan_cgroups(
    quota: Quota,
    *,
    limit_processes: bool,
    lower_priority: bool = True,
    folder_group: str = "",
    root: Path = Path("/"),
) -> tuple[Cgroup, ...]:
    """The groups that limit a server's total memory, its share of processor time and, with `limit_processes`, its number of processes.

    These groups lie in an outer group, whose servers may use three quarters of the machine's memory together. With `lower_priority`, the
    outer group also gets only half of another program's processor time; with cgroup version 2, the servers without `lower_priority` have
    another outer group. `folder_group` names a group in the outer one, for the servers of one folder. Set
    `limit_processes` for a server that runs as root: the kernel does not apply RLIMIT_NPROC to root. `root` is `/`, except in
    tests. If this host may not create groups, the result is empty, and only the limits per process apply.
    """
    hierarchies = _parse_hierarchies((root / "proc/self/cgroup").read_text(encoding="utf-8"))
    planned: list[Cgroup] = []
    if (own_group := hierarchies.get("")) is not None:
        limits = _unified_limits(quota, limit_processes=limit_processes, lower_priority=lower_priority)
        planned += _plan_unified(root, own_group, limits, folder_group, lower_priority=lower_priority)
    used = {name.partition(".")[0] for group in planned for name in group.limits}
    version_1 = _version_1_limits(quota, limit_processes=limit_processes, lower_priority=lower_priority)
    for controller, limits in version_1.items():
        if controller in hierarchies and controller not in used:
            parent = root / "sys/fs/cgroup" / controller / hierarchies[controller].lstrip("/")
            planned += _plan_version_1(parent, controller, limits, folder_group)
    return tuple(planned)


def _plan_unified(
    root: Path, own_group: str, limits: Mapping[str, str], folder_group: str, *, lower_priority: bool
) -> Iterator[Cgroup]:
    """The group in the hierarchy of version 2, with those limits whose controllers can be used; none if no controller can be used."""
    # A system that uses both versions has version 2 in `unified`.
    for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
        parent = _parent_group(root / mount, own_group)
        controllers = _read_words(parent / "cgroup.subtree_control")
        usable = {name: value for name, value in limits.items() if name.partition(".")[0] in controllers}
        if usable and _is_writable(parent):
            outer = _unified_outer(usable, folder_group, lower_priority=lower_priority)
            yield Cgroup(parent=str(parent), limits=usable, outer=outer)
            return


def _plan_version_1(
    parent: Path, controller: str, limits: Mapping[str, str], folder_group: str
) -> Iterator[Cgroup]:
    """The group in the hierarchy of one controller of version 1; none if it cannot be created."""
    if controller == "memory":  # a kernel may lack some of these files
        limits = {name: value for name, value in limits.items() if (parent / name).exists()}
    if limits and _is_writable(parent):
        outer = () if controller == "pids" else _version_1_outer(limits, folder_group)
        yield Cgroup(parent=str(parent), limits=limits, outer=outer)


def _unified_limits(quota: Quota, *, limit_processes: bool, lower_priority: bool) -> dict[str, str]:
    memory = {"memory.max": str(quota.memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
    pids = {"pids.max": str(quota.processes)} if limit_processes else {}
    cpu = {"cpu.weight": "50"} if lower_priority else {}  # the default of a group is 100
    return {**memory, **pids, **cpu}


def _unified_outer(
    limits: Mapping[str, str], folder_group: str, *, lower_priority: bool
) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """The names and limits of the outer groups, which also pass the controllers on to the groups in them."""
    controllers = dict.fromkeys(name.partition(".")[0] for name in limits)
    delegate = {"cgroup.subtree_control": " ".join(f"+{name}" for name in controllers)}
    shared = {"cpu.weight": "50", "memory.max": str(outer_group_memory())}
    shared_limits = {name: value for name, value in shared.items() if name in limits}
    outermost = _OUTER if lower_priority else _OUTER_NORMAL_PRIORITY
    return (outermost, {**shared_limits, **delegate}), *([(folder_group, delegate)] if folder_group else [])


def _version_1_limits(
    quota: Quota, *, limit_processes: bool, lower_priority: bool
) -> dict[str, dict[str, str]]:
    pids = {"pids": {"pids.max": str(quota.processes)}} if limit_processes else {}
    memory = {
        "memory.limit_in_bytes": str(quota.memory_bytes),
        "memory.memsw.limit_in_bytes": str(quota.memory_bytes),
        "memory.kmem.tcp.limit_in_bytes": str(quota.memory_bytes // _TCP_DIVISOR),
    }
    cpu = {"cpu": {"cpu.shares": "512"}} if lower_priority else {}  # the default is 1024
    return {**pids, **cpu, "memory": memory}


def _version_1_outer(
    limits: Mapping[str, str], folder_group: str
) -> tuple[tuple[str, Mapping[str, str]], ...]:
    shared = {"cpu.shares": "512", "memory.limit_in_bytes": str(outer_group_memory())}
    shared_limits = {name: value for name, value in shared.items() if name in limits}
    return (_OUTER, shared_limits), *([(folder_group, {})] if folder_group else [])


def outer_group_memory() -> int:
    """How much memory the servers in one outer group may use together."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3


def _parse_hierarchies(text: str) -> dict[str, str]:
    """This process's group in each hierarchy, by controller; the unified hierarchy's key is empty."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), group)
    return groups


def _parent_group(mount: Path, group: str) -> Path:
    """The parent of this process's group. The server's group must be created there: a group with processes can have no children with limits."""
    return mount / group.strip("/").rpartition("/")[0]


def _read_words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
