"""Build bubblewrap's arguments for one confined server, without accessing files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.model.quota import Quota

PROXY_PORT = 3128


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One path inside the sandbox: a bound descriptor, an empty file system, or a symbolic link."""

    path: str
    kind: Literal["bind", "ro-bind", "guard", "empty", "symlink"]
    """`guard` is a read-only bind that is mounted after every other mount at its path. `empty` is a small tmpfs, whose files are
    lost with the sandbox."""
    source: str = ""
    """The number of the bound descriptor in the sandbox, or the target of the link; empty for `empty`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filesystem:
    """The files that a confined server sees: its own mounts, system mounts, and generated files."""

    mounts: tuple[Mount, ...]
    system_mounts: tuple[Mount, ...]
    files: Mapping[str, int]
    """Generated read-only files: for each path, the number of the descriptor with the content."""
    hidden_files: tuple[str, ...] = ()
    """Files below `/proc` that the server must not read."""
    hidden_folders: tuple[str, ...] = ()
    """Folders below `/proc` whose content the server must not see."""


def build_arguments(
    filesystem: Filesystem,
    *,
    env: Mapping[str, str],
    cwd: str,
    quota: Quota,
    ids: tuple[int, int],
    fds: tuple[int, int, int],
) -> list[str]:
    """All arguments before the program.

    `ids` are the uid and gid in the sandbox. `fds` are the descriptors of the seccomp filter, the ready pipe and the start pipe,
    as numbered in the sandbox.
    """
    uid, gid = ids
    seccomp, ready, start = fds
    tmpfs = str(quota.memory_bytes // 4)
    return [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--unshare-net", "--hostname", "sandbox"),
        *("--uid", str(uid), "--gid", str(gid), "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *_setenv_arguments(env),
        *_mount_arguments(filesystem.system_mounts),
        *_file_arguments(filesystem.files),
        # A process with uid 0 may write to /proc/sys even without capabilities, so all of /proc is read-only.
        *("--proc", "/proc"),
        *(word for path in filesystem.hidden_files for word in ("--ro-bind", "/dev/null", path)),
        *(word for path in filesystem.hidden_folders for word in ("--tmpfs", path, "--remount-ro", path)),
        *("--remount-ro", "/proc"),
        *("--dev", "/dev", "--perms", "1777", "--size", tmpfs, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--perms", "1777", "--size", tmpfs, "--tmpfs", "/tmp"),
        *("--size", "16777216", "--tmpfs", "/run"),
        *_mount_arguments(sorted(filesystem.mounts, key=_mount_order)),
        *("--remount-ro", "/", "--chdir", cwd),
        *("--seccomp", str(seccomp), "--info-fd", str(ready), "--block-fd", str(start)),
    ]


def prlimit_command(prlimit: str, quota: Quota, limits: Mapping[str, int]) -> list[str]:
    """The `prlimit` command that runs the server's command with limits. `nproc` counts only processes in the sandbox."""
    return [
        prlimit,
        f"--nproc={quota.processes}",
        *(f"--{name}={value}" for name, value in limits.items()),
        "--",
    ]


def add_proxy_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Add the variables that make programs use the egress proxy."""
    url = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**env, **dict.fromkeys(names, url), "NODE_USE_ENV_PROXY": "1"}


def _setenv_arguments(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        yield from ("--setenv", name, value)


def _mount_arguments(mounts: Iterable[Mount]) -> Iterator[str]:
    for mount in mounts:
        match mount.kind:
            case "bind" | "ro-bind":
                yield from (f"--{mount.kind}-fd", mount.source, mount.path)
            case "empty":
                yield from ("--perms", "0555", "--size", "4096", "--tmpfs", mount.path)
            case "guard":
                yield from ("--ro-bind-fd", mount.source, mount.path)
            case "symlink":
                yield from ("--symlink", mount.source, mount.path)


def _file_arguments(files: Mapping[str, int]) -> Iterator[str]:
    for path, fd in files.items():
        yield from ("--ro-bind-data", str(fd), path)


def _mount_order(mount: Mount) -> tuple[int, int]:
    """Outer paths come first, so that inner mounts lie on top. For equal paths the last one wins: `bind` over `ro-bind`."""
    return mount.path.count("/"), ("symlink", "ro-bind", "bind", "empty", "guard").index(mount.kind)
