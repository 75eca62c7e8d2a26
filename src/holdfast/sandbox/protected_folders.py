"""Refuse to mount Holdfast's own folders and those of the kernel, also if a link or a bind mount leads there."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import (
    Location,
    MountPoint,
    find_location,
    is_within,
    read_mounts,
    visible_file_systems,
    visible_locations,
)
from holdfast.sandbox.opened_path import Identity, OpenedPath, PathOpener

# Folders that show other processes, devices, sockets and settings of the kernel. Each sandbox has its own folders of these names.
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev", "/run")
# Exceptions: disks that were plugged in, and programs of NixOS.
_NOT_KERNEL_FOLDERS = ("/run/media", "/run/current-system", "/run/wrappers")
_KERNEL_FILE_SYSTEMS = frozenset(
    (
        "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "configfs",
        "fusectl", "bpf", "pstore", "mqueue", "binfmt_misc", "efivarfs", "nsfs", "rpc_pipefs", "selinuxfs", "nfsd",
    )
)  # fmt: skip


class ProtectedFolders:
    """The folders that must not be visible in any sandbox."""

    def __init__(
        self, paths: Iterable[str], resources: ExitStack, mounts: Iterable[MountPoint] | None = None
    ) -> None:
        self._paths = {path: _existing_part(PathOpener(resources), path) for path in dict.fromkeys(paths)}
        self._mounts = tuple(read_mounts() if mounts is None else mounts)
        self._locations = {path: find_location(path, self._mounts) for path in self._paths}

    def check(self, opened: OpenedPath) -> None:
        """Raise if this path contains a protected folder or lies in one. Call it right before the path is mounted."""
        if _shows_kernel(opened.path, self._mounts):
            raise _kernel_folder_error(opened.path)
        self_and_parents: set[Identity] = {step.identity for step in opened.self_and_parents()}
        shown = tuple(visible_locations(opened.path, self._mounts))
        for path, (existing, is_whole) in self._paths.items():
            if (
                opened.identity in {step.identity for step in existing.self_and_parents()}
                or (is_whole and existing.identity in self_and_parents)
                or any(_overlap(self._locations[path], location) for location in shown)
            ):
                raise _overlap_error(opened.path, path)


def why_not_mounted(paths: Iterable[str], protected: Iterable[str]) -> str:
    """Why a sandbox would not mount one of these paths; empty if it would. Paths that do not exist are left out."""
    with ExitStack() as resources:
        folders = ProtectedFolders(protected, resources)
        for path in paths:
            try:
                if os.path.isabs(path):  # noqa: PTH117 - a word of a server's entry
                    folders.check(PathOpener(resources).open(path, links="keep_last"))
            except HoldfastError as error:
                return error.message
            except (OSError, ValueError):
                continue
    return ""


def is_of_kernel(mount: MountPoint) -> bool:
    """Whether the mount shows a file system of the kernel, such as `proc`."""
    return mount.file_system in _KERNEL_FILE_SYSTEMS


def _shows_kernel(path: str, mounts: Iterable[MountPoint]) -> bool:
    """Whether the path is a folder of the kernel, or contains one."""
    if any(is_within(path, folder) for folder in _KERNEL_FOLDERS):
        return not any(is_within(path, folder) for folder in _NOT_KERNEL_FOLDERS)
    return not _KERNEL_FILE_SYSTEMS.isdisjoint(visible_file_systems(path, mounts))


def _kernel_folder_error(path: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"{path!r} cannot be mounted in a sandbox: it shows other processes, devices or settings of the kernel"
        f" ({', '.join(_KERNEL_FOLDERS)}). Use another path.",
    )


def _overlap(one: Location, other: Location) -> bool:
    return one[0] == other[0] and (is_within(one[1], other[1]) or is_within(other[1], one[1]))


def _existing_part(opener: PathOpener, path: str) -> tuple[OpenedPath, bool]:
    """The path if it exists, else its innermost parent that does; and whether it was the path itself."""
    for part in (Path(path), *Path(path).parents):
        try:
            return opener.open(str(part), links="keep_last"), part == Path(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return opener.open("/", links="refuse"), False


def _overlap_error(path: str, protected: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"{path!r} cannot be mounted in a sandbox: it overlaps with Holdfast's own files ({protected!r})."
        " Use another folder, or move Holdfast's data folder.",
    )
