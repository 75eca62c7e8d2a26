"""Which control groups a server gets: read from the machine's own files."""

from pathlib import Path

from holdfast.model.launch import Quota
from holdfast.sandbox.cgroup import groups
from holdfast.sandbox.program import Cgroup

QUOTA = Quota(memory_bytes=1000, processes=7)
MEMORY = {"memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1"}


def machine(root: Path, own: str, *files: str, controllers: str = "") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for name in files:
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(controllers if name.endswith("subtree_control") else "")
    return root


def test_a_unified_group_is_made_beside_our_own(tmp_path: Path) -> None:
    root = machine(
        tmp_path, "0::/user.slice/app.slice/holdfast.scope\n", "user.slice/app.slice/cgroup.subtree_control",
        "user.slice/app.slice/cgroup.procs", controllers="memory pids\n",
    )  # fmt: skip
    parent = str(root / "sys/fs/cgroup/user.slice/app.slice")

    assert groups(QUOTA, processes=False, root=root) == (Cgroup(parent=parent, limits=MEMORY),)
    assert groups(QUOTA, processes=True, root=root) == (
        Cgroup(parent=parent, limits={**MEMORY, "pids.max": "7"}),
    )


def test_controllers_that_are_not_handed_down_are_not_used(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/a/b\n", "a/cgroup.subtree_control", "a/cgroup.procs", controllers="cpu\n")

    assert groups(QUOTA, processes=True, root=root) == ()


def test_of_the_old_hierarchies_the_one_for_processes_is_used_where_it_is_needed(tmp_path: Path) -> None:
    root = machine(tmp_path, "8:pids:/x\n4:memory:/y\n0::/\n", "pids/x/cgroup.procs")

    assert groups(QUOTA, processes=False, root=root) == ()
    assert groups(QUOTA, processes=True, root=root) == (
        Cgroup(parent=str(root / "sys/fs/cgroup/pids/x"), limits={"pids.max": "7"}),
    )


def test_a_machine_without_any_gives_none(tmp_path: Path) -> None:
    assert groups(QUOTA, processes=True, root=machine(tmp_path, "0::/a\n")) == ()
