"""The walls of bubblewrap, as its arguments: decided here, from values alone."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.model.launch import Quota

PROXY_PORT = 3128


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something to show at a place: a descriptor to bind, what a symbolic link says, or nothing at all."""

    place: str
    kind: Literal["bind", "ro-bind", "symlink", "hidden"]
    source: str = ""
    """A descriptor's number, or the link's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a confined server sees: mounts of its own, of the system's, and small files made for it."""

    mounts: tuple[Mount, ...]
    system: tuple[Mount, ...]
    files: Mapping[str, int]
    """Small read-only files, each from a descriptor."""


def arguments(
    view: View, *, env: Mapping[str, str], cwd: str, quota: Quota, ids: tuple[int, int], fds: tuple[int, int]
) -> list[str]:
    """Every argument of bubblewrap's but the program. `fds`: where the filter is read, where success is told."""
    uid, gid = ids
    seccomp, stands = fds
    tmpfs = str(quota.memory_bytes // 4)
    return [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--unshare-net", "--hostname", "sandbox"),
        *("--uid", str(uid), "--gid", str(gid), "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *_environment(env),
        *_shown(view.system),
        *_small_files(view.files),
        # A process of kernel uid 0 may write to /proc/sys without any capability: no writing in /proc at all.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev", "--perms", "1777", "--size", tmpfs, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--perms", "1777", "--size", tmpfs, "--tmpfs", "/tmp"),
        *("--size", "16777216", "--tmpfs", "/run"),
        *_shown(sorted(view.mounts, key=_depth)),
        *("--remount-ro", "/", "--chdir", cwd),
        *("--seccomp", str(seccomp), "--info-fd", str(stands)),
    ]


def limits(prlimit: str, quota: Quota) -> list[str]:
    """The program that sets the limits from inside, where they count for this server alone, and then becomes it.

    Memory is limited as data, not as address space: Node and WebAssembly reserve far more than they use.
    """
    return [
        prlimit,
        f"--data={quota.memory_bytes}",
        f"--nproc={quota.processes}",
        f"--fsize={quota.file_bytes}",
        f"--nofile={quota.descriptors}",
        "--core=0",
        "--",
    ]


def proxied(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the way to the proxy in it, as programs look for it."""
    url = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**env, **dict.fromkeys(names, url), "NODE_USE_ENV_PROXY": "1"}


def _environment(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        yield from ("--setenv", name, value)


def _shown(mounts: Iterable[Mount]) -> Iterator[str]:
    for mount in mounts:
        match mount.kind:
            case "bind" | "ro-bind":
                yield from (f"--{mount.kind}-fd", mount.source, mount.place)
            case "symlink":
                yield from ("--symlink", mount.source, mount.place)
            case "hidden":
                yield from ("--tmpfs", mount.place, "--remount-ro", mount.place)


def _small_files(files: Mapping[str, int]) -> Iterator[str]:
    for place, fd in files.items():
        yield from ("--ro-bind-data", str(fd), place)


def _depth(mount: Mount) -> tuple[int, int]:
    """Outer places first, so that inner ones lie on top; of two for one place, the root's, or nothing."""
    return mount.place.count("/"), ("symlink", "ro-bind", "bind", "hidden").index(mount.kind)
