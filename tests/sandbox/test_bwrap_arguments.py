"""Bubblewrap's arguments."""

from holdfast.model.quota import Quota
from holdfast.sandbox.bwrap.arguments import (
    Filesystem,
    Mount,
    add_proxy_variables,
    build_arguments,
    prlimit_command,
)
from holdfast.sandbox.rlimits import rlimits


def arguments(*mounts: Mount) -> list[str]:
    filesystem = Filesystem(
        mounts=mounts,
        system_mounts=(Mount(path="/usr", kind="ro-bind", source="9"),),
        files={"/etc/passwd": 8},
    )
    return build_arguments(filesystem, env={"A": "1"}, cwd="/w", quota=Quota(), ids=(7, 8), fds=(4, 5, 6))


def test_all_namespaces_are_unshared_and_all_capabilities_dropped() -> None:
    built = arguments()

    expected = {
        *(
            "--unshare-user",
            "--disable-userns",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-net",
        ),
        *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"),
    }
    assert expected - set(built) == set()
    assert " ".join(built).count("--cap-drop ALL") == 1
    assert built[built.index("--setenv") :][:3] == ["--setenv", "A", "1"]


def test_folders_are_bound_by_descriptor_from_the_outside_in() -> None:
    inner = Mount(path="/w/a/b", kind="ro-bind", source="12")
    outer = Mount(path="/w", kind="bind", source="11")

    joined = " ".join(arguments(inner, outer))

    assert (
        joined.index("--tmpfs /tmp")
        < joined.index("--bind-fd 11 /w")
        < joined.index("--ro-bind-fd 12 /w/a/b")
    )
    assert joined.endswith("--remount-ro / --chdir /w --seccomp 4 --info-fd 5 --block-fd 6")
    assert "--proc /proc --remount-ro /proc" in joined


def test_quota_becomes_a_prlimit_command() -> None:
    quota = Quota(memory_bytes=1, processes=2, file_bytes=3, descriptors=100)

    assert prlimit_command("prlimit", quota, rlimits(quota)) == [
        *("prlimit", "--nproc=2", "--data=1", "--fsize=3", "--nofile=100", "--core=0"),
        *("--sigpending=1024", "--msgqueue=0", "--memlock=65536", "--nice=0", "--rtprio=0", "--"),
    ]


def test_egress_proxy_replaces_any_other_proxy() -> None:
    env = add_proxy_variables({"HTTPS_PROXY": "http://elsewhere", "B": "2"})

    assert (env["HTTPS_PROXY"], env["http_proxy"], env["B"]) == (
        "http://127.0.0.1:3128",
        "http://127.0.0.1:3128",
        "2",
    )
