"""The walls in bubblewrap's words."""

from holdfast.model.launch import Quota
from holdfast.sandbox.profile import Mount, View, arguments, limits, proxied


def words(*mounts: Mount) -> list[str]:
    view = View(
        mounts=mounts, system=(Mount(place="/usr", kind="ro-bind", source="9"),), files={"/etc/passwd": 8}
    )
    return arguments(view, env={"A": "1"}, cwd="/w", quota=Quota(), ids=(7, 8), fds=(4, 5))


def test_every_namespace_is_new_every_right_is_dropped_and_nothing_is_inherited() -> None:
    said = words()

    wanted = {
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
    assert wanted - set(said) == set()
    assert " ".join(said).count("--cap-drop ALL") == 1
    assert said[said.index("--setenv") :][:3] == ["--setenv", "A", "1"]


def test_folders_are_bound_by_descriptor_outer_ones_first_and_the_rest_is_made_read_only_last() -> None:
    inner = Mount(place="/w/a/b", kind="ro-bind", source="12")
    outer = Mount(place="/w", kind="bind", source="11")

    said = " ".join(words(inner, outer))

    assert said.index("--tmpfs /tmp") < said.index("--bind-fd 11 /w") < said.index("--ro-bind-fd 12 /w/a/b")
    assert said.endswith("--remount-ro / --chdir /w --seccomp 4 --info-fd 5")
    assert "--proc /proc --remount-ro /proc" in said


def test_the_quota_is_set_from_inside() -> None:
    quota = Quota(memory_bytes=1, processes=2, file_bytes=3, descriptors=4)

    assert limits("prlimit", quota) == [
        *("prlimit", "--data=1", "--nproc=2", "--fsize=3", "--nofile=4", "--core=0", "--"),
    ]


def test_the_way_to_the_proxy_replaces_any_other() -> None:
    env = proxied({"HTTPS_PROXY": "http://elsewhere", "B": "2"})

    assert (env["HTTPS_PROXY"], env["http_proxy"], env["B"]) == (
        "http://127.0.0.1:3128",
        "http://127.0.0.1:3128",
        "2",
    )
