"""Refuse to mount Holdfast's own folders, by any path: they are recognised by device and inode, and by bind mounts."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.held_path import HeldPath, Identity, PathHolder


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """One line of `/proc/self/mountinfo`: which folder of which file system is mounted where."""

    device: str
    source: str
    path: str
    is_read_only: bool = False


class ProtectedFolders:
    """The folders that must not be visible in any sandbox. Checked right before each mount."""

    def __init__(
        self, paths: Iterable[str], opened: ExitStack, mounts: Iterable[MountPoint] | None = None
    ) -> None:
        self._paths = {path: _existing_part(PathHolder(opened), path) for path in dict.fromkeys(paths)}
        self._mounts = () if not self._paths else tuple(read_mounts() if mounts is None else mounts)
        self._locations = {path: self._location(path) for path in self._paths}

    def check(self, held: HeldPath) -> None:
        """Raise if this path contains a protected folder or lies in one."""
        if not self._paths:
            return
        inside: set[Identity] = {step.identity for step in held.self_and_parents()}
        shown = tuple(self._shown_locations(held.path))
        for path, (existing, is_whole) in self._paths.items():
            if (
                held.identity in {step.identity for step in existing.self_and_parents()}
                or (is_whole and existing.identity in inside)
                or any(_overlap(self._locations[path], location) for location in shown)
            ):
                raise _refused(held.path, path)

    def _shown_locations(self, path: str) -> Iterator[tuple[str, str]]:
        """The locations in file systems that are visible below this path, also through bind mounts."""
        yield self._location(path)
        for mount in self._mounts:
            if mount.path.startswith(f"{path}/"):
                yield mount.device, mount.source

    def _location(self, path: str) -> tuple[str, str]:
        """A path's file system and its path in there, which are the same for all bind mounts of a folder."""
        found = MountPoint(device="", source="/", path="/")
        for mount in self._mounts:  # a later mount covers an earlier one
            if is_within(path, mount.path) and len(mount.path) >= len(found.path):
                found = mount
        rest = path.removeprefix(found.path.rstrip("/"))
        return found.device, (found.source.rstrip("/") + rest) or "/"


def is_within(path: str, folder: str) -> bool:
    """Whether a normalized path is this folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_mountinfo(text: str) -> tuple[MountPoint, ...]:
    """The mount points, in the order in which they were mounted."""
    fields = (line.split(" ") for line in text.splitlines())
    return tuple(
        MountPoint(
            device=line[2],
            source=_unescape(line[3]),
            path=_unescape(line[4]),
            is_read_only="ro" in line[5].split(","),
        )
        for line in fields
        if len(line) > 5
    )


def read_mounts() -> tuple[MountPoint, ...]:
    """The mount points of this process."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _overlap(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] == other[0] and (is_within(one[1], other[1]) or is_within(other[1], one[1]))


def _existing_part(holder: PathHolder, path: str) -> tuple[HeldPath, bool]:
    """The path, or its innermost parent that exists; and whether it is the whole path."""
    for part in (Path(path), *Path(path).parents):
        try:
            return holder.open(str(part), links="in folders"), part == Path(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return holder.open("/", links="refuse"), False


def _refused(path: str, protected: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"{path!r} cannot be mounted in a sandbox: it overlaps with Holdfast's own files ({protected!r})."
        " Use another folder, or move Holdfast's data folder.",
    )
