"""The mount points of this process, and all paths at which a folder is visible."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

Location = tuple[str, str]
"""The device of a file system, and a path in that file system. All bind mounts of a folder have the same location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """One line of `/proc/self/mountinfo`: which folder of which file system is mounted where."""

    device: str
    root: str
    """The folder in the file system that is mounted."""
    path: str
    """Where that folder is mounted."""
    is_read_only: bool = False
    file_system: str = field(default="", compare=False)
    """The type of the file system, such as `ext4` or `proc`."""


def is_within(path: str, folder: str) -> bool:
    """Whether a normalized path is this folder or is inside it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_mountinfo(text: str) -> tuple[MountPoint, ...]:
    """The mount points, in the order in which they were mounted."""
    # Not `splitlines`: names may contain U+2028, \f and the like.
    fields = (line.split(" ") for line in text.split("\n"))
    return tuple(
        MountPoint(
            device=line[2],
            root=_unescape(line[3]),
            path=_unescape(line[4]),
            is_read_only="ro" in line[5].split(","),
            file_system=line[line.index("-", 6) + 1] if "-" in line[6:-1] else "",
        )
        for line in fields
        if len(line) > 5
    )


def read_mounts() -> tuple[MountPoint, ...]:
    """The mount points of this process. Empty on systems without `/proc`."""
    try:
        with Path("/proc/self/mountinfo").open(
            encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            return _parse_cached(file.read())
    except FileNotFoundError:
        return ()


@lru_cache(maxsize=1)
def _parse_cached(text: str) -> tuple[MountPoint, ...]:
    return parse_mountinfo(text)


def visible_file_systems(path: str, mounts: Iterable[MountPoint]) -> Iterator[str]:
    """The types of the file systems that are visible at this real path and below it."""
    all_mounts = tuple(mounts)
    yield _find_mount(path, all_mounts).file_system
    yield from (
        mount.file_system for mount in all_mounts if mount.path != path and is_within(mount.path, path)
    )


def find_location(path: str, mounts: Iterable[MountPoint]) -> Location:
    """The file system that contains a real path, and the path within that file system."""
    mount = _find_mount(path, mounts)
    rest = path.removeprefix(mount.path.rstrip("/"))
    return mount.device, (mount.root.rstrip("/") + rest) or "/"


def _find_mount(path: str, mounts: Iterable[MountPoint]) -> MountPoint:
    innermost = MountPoint(device="", root="/", path="/")
    for mount in mounts:  # a later mount covers an earlier one
        if is_within(path, mount.path) and len(mount.path) >= len(innermost.path):
            innermost = mount
    return innermost


def visible_locations(path: str, mounts: Iterable[MountPoint]) -> Iterator[Location]:
    """The locations that are visible at this path and below it, including those of bind mounts."""
    yield find_location(path, mounts)
    for mount in mounts:
        if mount.path != path and is_within(mount.path, path):
            yield mount.device, mount.root


def with_bind_mounts(paths: Iterable[str], mounts: Iterable[MountPoint]) -> tuple[str, ...]:
    """These real paths, and every other path at which a bind mount shows them or a part of them.

    Compare all of these with another path to find every overlap.
    """
    all_mounts = tuple(mounts)
    all_paths: dict[str, None] = {}  # an ordered set
    for path in paths:
        all_paths[path] = None
        for device, location in visible_locations(path, all_mounts):
            for mount in all_mounts:
                if mount.device != device:
                    continue
                if is_within(location, mount.root):
                    rest = location.removeprefix(mount.root.rstrip("/"))
                    all_paths[(mount.path.rstrip("/") + rest) or "/"] = None
                elif is_within(mount.root, location):
                    all_paths[mount.path] = None
    return tuple(all_paths)


def _unescape(text: str) -> str:
    if "\\" not in text:  # the common case
        return text
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
