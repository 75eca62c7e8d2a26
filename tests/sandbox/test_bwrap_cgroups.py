"""Which control groups a server gets, given the files of a machine."""

from pathlib import Path

from holdfast.model.quota import Quota
from holdfast.sandbox.bwrap import cgroups
from holdfast.sandbox.bwrap.cgroups import plan_cgroups
from holdfast.sandbox.keeper.spawn_request import Cgroup

QUOTA = Quota(memory_bytes=1000, processes=7)
MEMORY = {"memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1"}


def make_machine(root: Path, own: str, *files: str, controllers: str = "") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for name in files:
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(controllers if name.endswith("subtree_control") else "")
    return root


def test_unified_group_is_a_sibling_of_the_hosts_own(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path, "0::/user.slice/app.slice/holdfast.scope\n", "user.slice/app.slice/cgroup.subtree_control",
        "user.slice/app.slice/cgroup.procs", controllers="memory pids\n",
    )  # fmt: skip
    parent = str(root / "sys/fs/cgroup/user.slice/app.slice")

    for_all = {"memory.max": str(cgroups.outer_group_memory()), "cgroup.subtree_control": "+memory"}
    assert plan_cgroups(QUOTA, limit_processes=False, root=root) == (
        Cgroup(parent=parent, limits=MEMORY, outer=(("holdfast-confined", for_all),)),
    )
    for_all["cgroup.subtree_control"] = delegate = "+memory +pids"
    assert plan_cgroups(QUOTA, limit_processes=True, folder_group="a", root=root) == (
        Cgroup(
            parent=parent,
            limits={**MEMORY, "pids.max": "7"},
            outer=(("holdfast-confined", for_all), ("a", {"cgroup.subtree_control": delegate})),
        ),
    )


def test_controllers_that_are_not_delegated_are_not_used(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path, "0::/a/b\n", "a/cgroup.subtree_control", "a/cgroup.procs", controllers="io\n"
    )

    assert plan_cgroups(QUOTA, limit_processes=True, root=root) == ()


def test_pids_hierarchy_of_version_1_is_used_only_to_limit_processes(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "8:pids:/x\n4:memory:/y\n0::/\n", "pids/x/cgroup.procs")

    assert plan_cgroups(QUOTA, limit_processes=False, root=root) == ()
    assert plan_cgroups(QUOTA, limit_processes=True, root=root) == (
        Cgroup(parent=str(root / "sys/fs/cgroup/pids/x"), limits={"pids.max": "7"}),
    )


def test_processor_time_has_a_lower_weight_where_that_is_possible(tmp_path: Path) -> None:
    unified = make_machine(
        tmp_path / "2", "0::/a/b\n", "a/cgroup.subtree_control", "a/cgroup.procs", controllers="cpu\n"
    )
    version_1 = make_machine(tmp_path / "1", "1:cpu,cpuacct:/\n0::/\n", "cpu/cgroup.procs")

    for_all = {"cpu.weight": "50", "cgroup.subtree_control": "+cpu"}
    assert plan_cgroups(QUOTA, limit_processes=False, root=unified) == (
        Cgroup(
            parent=str(unified / "sys/fs/cgroup/a"),
            limits={"cpu.weight": "50"},
            outer=(("holdfast-confined", for_all),),
        ),
    )
    shares = {"cpu.shares": "512"}
    assert plan_cgroups(QUOTA, limit_processes=False, folder_group="a", root=version_1) == (
        Cgroup(
            parent=str(version_1 / "sys/fs/cgroup/cpu"),
            limits=shares,
            outer=(("holdfast-confined", shares), ("a", {})),
        ),
    )


def test_a_program_that_the_user_waits_for_keeps_its_share_of_processor_time(tmp_path: Path) -> None:
    unified = make_machine(
        tmp_path / "2", "0::/a/b\n", "a/cgroup.subtree_control", "a/cgroup.procs", controllers="cpu memory\n"
    )
    version_1 = make_machine(tmp_path / "1", "1:cpu,cpuacct:/\n0::/\n", "cpu/cgroup.procs")

    for_all = {"memory.max": str(cgroups.outer_group_memory()), "cgroup.subtree_control": "+memory"}
    assert plan_cgroups(QUOTA, limit_processes=False, lower_priority=False, root=unified) == (
        Cgroup(
            parent=str(unified / "sys/fs/cgroup/a"), limits=MEMORY, outer=(("holdfast-foreground", for_all),)
        ),
    )
    assert plan_cgroups(QUOTA, limit_processes=False, lower_priority=False, root=version_1) == ()


def test_memory_hierarchy_of_version_1_is_used_with_the_limits_that_the_kernel_has(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path, "4:memory:/y\n0::/\n", "memory/y/cgroup.procs", "memory/y/memory.limit_in_bytes"
    )

    assert plan_cgroups(QUOTA, limit_processes=False, root=root) == (
        Cgroup(
            parent=str(root / "sys/fs/cgroup/memory/y"),
            limits={"memory.limit_in_bytes": "1000"},
            outer=(("holdfast-confined", {"memory.limit_in_bytes": str(cgroups.outer_group_memory())}),),
        ),
    )


def test_machine_without_usable_groups_plans_none(tmp_path: Path) -> None:
    assert plan_cgroups(QUOTA, limit_processes=True, root=make_machine(tmp_path, "0::/a\n")) == ()
