"""The session's folders: which of them contains a path, and which paths in them are protected."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.protected import is_protected

_MAX_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedPaths:
    """Paths that the file tools must not touch, even inside a root.

    Folders are also recognised by device and inode, because a mount can show a folder under another name.
    """

    paths: tuple[str, ...] = ()
    folder_ids: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, paths: Sequence[str]) -> "ProtectedPaths":
        """Look up the folder ids of these paths."""
        ids = frozenset(folder_id for path in paths if (folder_id := _folder_id(path)) is not None)
        return cls(paths=tuple(paths), folder_ids=ids)

    def contains(self, real: str, status: os.stat_result | None = None) -> bool:
        """Whether a real path, or a folder with this status, is protected."""
        if (
            status is not None
            and stat.S_ISDIR(status.st_mode)
            and _device_and_inode(status) in self.folder_ids
        ):
            return True
        return is_protected(real, self.paths)


@dataclass(frozen=True, slots=True)
class RootedPath:
    """A root, and the steps of a path from it. The steps may be links or `..`, so the path must be walked."""

    root: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Roots:
    """The session's folders by their real paths. Relative paths start at the first folder."""

    folders: tuple[str, ...]
    protected: ProtectedPaths = ProtectedPaths()

    def resolve(self, path: str) -> RootedPath:
        """Find the root of a path. The path is literal: nothing in it is decoded or expanded."""
        _check_path(path)
        if not path.startswith("/"):
            return RootedPath(self.folders[0], _steps(path))
        found = self._find_root(path) or self._find_root(os.path.realpath(path))
        if found is None:
            raise outside_error(path, self.folders)
        return found

    def display_path(self, real: str) -> str:
        """A real path in the shortest form that `resolve` accepts."""
        first = self.folders[0]
        if real == first:
            return "."
        return real.removeprefix(first.rstrip("/") + "/")

    def folders_outside(self, real: str) -> list[str]:
        """The session's folders that are not inside this one."""
        within = real.rstrip("/") + "/"
        return [folder for folder in self.folders if folder != real and not folder.startswith(within)]

    def _find_root(self, path: str) -> RootedPath | None:
        for root in sorted(self.folders, key=len, reverse=True):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return RootedPath(root, _steps(path.removeprefix(root)))
        return None


def outside_error(path: str, folders: tuple[str, ...]) -> HoldfastError:
    """The error for a path that leads out of the roots."""
    return HoldfastError(
        codes.OUTSIDE_ROOTS, f"{path[:200]!r} is outside this session's folders: {', '.join(folders)}."
    )


def protected_error(path: str) -> HoldfastError:
    """The error for a path that leads to Holdfast's own files."""
    return HoldfastError(
        codes.DENIED,
        f"{path[:200]!r} belongs to Holdfast: sessions cannot read or change its data, keys or settings. "
        "You can, outside of Holdfast.",
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split("/") if step not in ("", "."))


def _check_path(path: str) -> None:
    if not path:
        raise HoldfastError(codes.BAD_PATH, "The path is empty. Use '.' for the session's folder.")
    if "\0" in path or not _is_encodable(path):
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} has a character that is not allowed in a path.")
    if len(os.fsencode(path)) >= _MAX_PATH_BYTES:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r}… is too long for a path.")
    if "://" in path:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} is a URL. Give a path.")
    for step in path.split("/"):
        if _is_encoded_step(step):
            raise HoldfastError(
                codes.BAD_PATH, f"{step[:80]!r} is a percent-encoded path step. Write it without encoding."
            )


def _is_encoded_step(step: str) -> bool:
    """Whether a step is an encoded `..` or has an encoded slash. An editor may turn the path into a URL and decode it."""
    while (decoded := unquote(step)) != step:
        if decoded in (".", "..") or "/" in decoded or "\0" in decoded:
            return True
        step = decoded
    return False


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path).decode()
    except UnicodeError:
        return False
    return True


def _folder_id(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:  # it does not exist yet, so only its path is compared
        return None
    return _device_and_inode(status) if stat.S_ISDIR(status.st_mode) else None


def _device_and_inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
