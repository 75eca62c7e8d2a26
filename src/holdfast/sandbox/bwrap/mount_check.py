"""Compare the mounts of a new sandbox with the plan, before its server may run.

Bubblewrap mounts by path. If another process replaces a folder on such a path at that moment, a wrong folder is mounted, or a
folder is mounted at a wrong place. So the result is always checked.
"""

import contextlib
import ctypes
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import MountPoint, is_within, parse_mountinfo, read_mounts
from holdfast.sandbox.bwrap.arguments import Filesystem
from holdfast.sandbox.opened_path import Identity
from holdfast.sandbox.protected_folders import is_of_kernel

_BWRAP_MOUNTS = ("/", "/proc", "/dev", "/tmp", "/run")
# Bubblewrap mounts further file systems of its own inside these folders, in which no other process can put anything.
_UNCHECKED_FOLDERS = ("/proc", "/dev")
_NICE = 5
_POLL_SECONDS = 0.001
_SETUP_SECONDS = 10.0
_ROOT_LINE = re.compile(r"^(?:[^ \n]+ ){4}/ .*$", re.MULTILINE)
"""A line of `mountinfo` about a mount at `/`."""
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_PRIVATE_BELOW = 0x40000 | 0x4000  # MS_PRIVATE, MS_REC
_REMOUNT_READ_ONLY = 0x1 | 0x20 | 0x1000  # MS_RDONLY, MS_REMOUNT, MS_BIND
# For each flag of `statvfs` (ST_…) the flag of `mount` (MS_…). ST_NODEV is left out: the devices could not be opened with it.
_KEPT_FLAGS = {0x2: 0x2, 0x8: 0x8, 0x400: 0x400, 0x800: 0x800, 0x1000: 0x200000}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """What must be mounted, and where, once the sandbox is set up."""

    bound: Mapping[str, Identity]
    """The file or folder that is mounted at each path."""
    read_only: frozenset[str]
    """The bound paths that must be read-only."""
    other_paths: frozenset[str]
    """The paths of all other mounts: empty file systems and generated files."""
    protect_devices: bool = False
    """Whether to make the device files read-only. A server with the machine's uid 0 owns them, so it could change them."""
    lower_priority: bool = True
    """Whether to give the process a higher nice value."""

    def wait_and_check(self, pid: int) -> bool:
        """Wait until bubblewrap has mounted everything for the process `pid`. Raise if a mount is not as planned. Blocks.

        Before the mounts are compared with the plan, detach them from those of the machine if this process is root, and make the
        device files read-only if the plan says so. Afterwards, lower the priority of the process if the plan says so. Return False
        if the process has ended.
        """
        deadline = time.monotonic() + _SETUP_SECONDS
        problem = "it took too long"
        on_host = read_mounts()
        while time.monotonic() < deadline:
            try:
                text = _read_text(f"/proc/{pid}/mountinfo")
            except OSError:
                return False
            # Only the lines about `/` are parsed, because the text is read every millisecond.
            if is_set_up(parse_mountinfo("\n".join(_ROOT_LINE.findall(text))), on_host):
                _detach(pid, self._device_files(text), must_succeed=self.protect_devices)
                try:  # read again, because mounts of the machine may have appeared before the sandbox was detached
                    mounts = parse_mountinfo(_read_text(f"/proc/{pid}/mountinfo"))
                except OSError:
                    return False
                if problem := self.find_problem(pid, mounts, on_host):
                    break
                if self.lower_priority:
                    _lower_priority(pid)
                return True
            time.sleep(_POLL_SECONDS)
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"The sandbox was not set up as planned: {problem}. Another program may have changed a"
            " folder at that moment. Try again; if it happens again, close the other sessions in this folder.",
        )

    def find_problem(self, pid: int, mounts: Iterable[MountPoint], on_host: Iterable[MountPoint]) -> str:
        """The first difference between the plan and the mounts of this process; empty if there is none."""
        seen = Counter(mount.path for mount in mounts)
        read_only = {mount.path for mount in mounts if mount.is_read_only}
        for path in (*self.bound, *self.other_paths):
            if seen[path] != 1:
                return f"{path!r} is mounted {seen[path]} times"
        for path, identity in self.bound.items():
            if _identity(f"/proc/{pid}/root{path}") != identity:
                return f"{path!r} is not the file or folder that was checked"
            if path in self.read_only and path not in read_only:
                return f"{path!r} is not read-only"
        return next(self._unplanned(mounts, on_host), "")

    def _device_files(self, text: str) -> list[str]:
        """The paths of the device files that must become read-only."""
        if not self.protect_devices:
            return []
        mounts = parse_mountinfo(text)
        return [mount.path for mount in mounts if mount.path.startswith("/dev/") and mount.root != "/"]

    def _unplanned(self, mounts: Iterable[MountPoint], on_host: Iterable[MountPoint]) -> Iterator[str]:
        """Mounts that are not planned, except those inside a bound folder, which the host has at the same path."""
        host_mounts = {(mount.path, mount.device, mount.root) for mount in on_host}
        for mount in mounts:
            is_planned = mount.path in self.bound or mount.path in self.other_paths
            if is_planned or any(is_within(mount.path, folder) for folder in _UNCHECKED_FOLDERS):
                continue
            if (mount.path, mount.device, mount.root) not in host_mounts or is_of_kernel(mount):
                yield f"something is mounted at {mount.path!r}"


def plan_mounts(
    filesystem: Filesystem, descriptors: Mapping[str, int], *, protect_devices: bool, lower_priority: bool
) -> MountPlan:
    """The plan for this file system. `descriptors` holds this process's descriptor for each number in the sandbox."""
    mounts = [mount for mount in (*filesystem.system_mounts, *filesystem.mounts) if mount.kind != "symlink"]
    bound = {mount.path: mount for mount in mounts if mount.kind != "empty"}
    return MountPlan(
        bound={path: _status_identity(os.fstat(descriptors[mount.source])) for path, mount in bound.items()},
        read_only=frozenset(path for path, mount in bound.items() if mount.kind != "bind"),
        other_paths=frozenset(
            (*_BWRAP_MOUNTS, *filesystem.files, *(mount.path for mount in mounts if mount.kind == "empty"))
        ),
        protect_devices=protect_devices,
        lower_priority=lower_priority,
    )


def is_set_up(mounts: Iterable[MountPoint], on_host: Iterable[MountPoint]) -> bool:
    """Whether bubblewrap has finished: `/` is the sandbox's own and read-only, and the host's is unmounted."""
    host_devices = {mount.device for mount in on_host if mount.path == "/"}
    root_mounts = [mount for mount in mounts if mount.path == "/"]
    return len(root_mounts) == 1 and root_mounts[0].is_read_only and root_mounts[0].device not in host_devices


def _detach(pid: int, device_files: Iterable[str], *, must_succeed: bool) -> None:
    """Detach the mounts of a sandbox from those of the machine, and make its device files read-only, if this process is root.

    What root mounts later in a folder of the server, such as the `/proc` of a `chroot`, would otherwise appear in the sandbox, and a
    server with the machine's uid 0 could change the kernel's settings there. With `must_succeed`, raise on failure.
    """
    if os.geteuid() != 0:
        return
    problem = ["the thread did not end"]  # the thread empties this list, or replaces the text
    try:
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # the process has ended, which the caller notices when it reads the mounts again
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def enter_and_remount() -> None:
        try:
            _check(libc.unshare(_CLONE_FS))
            _check(libc.setns(namespace, _CLONE_NEWNS))
            _check(libc.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE_BELOW), None))
            # Programs can still write to a read-only device file. Bubblewrap's `--remount-ro` would also set `nodev`.
            for path in device_files:
                flags = os.statvfs(path).f_flag
                kept = sum(value for flag, value in _KEPT_FLAGS.items() if flags & flag)
                _check(libc.mount(None, path.encode(), None, ctypes.c_ulong(_REMOUNT_READ_ONLY | kept), None))
        except OSError as error:
            problem[:] = [str(error)]
        else:
            problem.clear()

    # A new thread, because it must enter the sandbox's mount namespace.
    thread = threading.Thread(target=enter_and_remount, name="holdfast-mounts")
    thread.start()
    thread.join()
    os.close(namespace)
    if problem and must_succeed:
        raise HoldfastError(
            codes.NO_SANDBOX,
            f"The sandbox could not be set up: the device files cannot be made read-only ({problem[0]}). Run Holdfast as a user"
            " other than root, or open the session in a folder that root does not own.",
        )


def _lower_priority(pid: int) -> None:
    """Give the process a higher nice value, so that other programs get more processor time."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, 0) + _NICE, 19))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _identity(path: str) -> Identity | None:
    with contextlib.suppress(OSError):
        return _status_identity(os.lstat(path))
    return None


def _status_identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _read_text(path: str) -> str:
    with Path(path).open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()
