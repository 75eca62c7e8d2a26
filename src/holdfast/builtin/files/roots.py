"""A session's roots: which of them contains a path, and which paths in them are protected. Links are symbolic links."""

import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.normal_form import normalize
from holdfast.model.visible_text import replace_invalid_utf8, replace_invisible
from holdfast.resolve.protected_paths import is_protected

MAX_LINKS = 40
_MAX_PATH_BYTES = 4096
# Components of a path from outside of the roots: each is looked up by its whole path.
_MAX_OUTSIDE_COMPONENTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSet:
    """A set of paths, with everything below them.

    Folders are also recognised by device and inode, because a mount can show a folder under another name.
    """

    paths: tuple[str, ...] = ()
    ids: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, paths: Sequence[str], *, with_files: bool = False) -> "PathSet":
        """Make a set of these paths, with the device and inode of each folder.

        With `with_files`, files are also recognised by device and inode. Use such a set at once: if a file is replaced, another
        file may get its inode.
        """
        statuses = (status for path in paths if (status := _status(path)) is not None)
        ids = (_device_and_inode(one) for one in statuses if with_files or stat.S_ISDIR(one.st_mode))
        return cls(paths=tuple(paths), ids=frozenset(ids))

    def contains(self, real_path: str, status: os.stat_result | None = None) -> bool:
        """Return whether this path is in the set, or below a path in the set. `status` is what `stat` returns for the path, if it exists."""
        if status is not None and _device_and_inode(status) in self.ids:
            return True
        return is_protected(real_path, self.paths)


@dataclass(frozen=True, slots=True)
class RootedPath:
    """A root, and the components from the root to a path. The components may be links or `..`: `open_path` follows and checks each one."""

    root: str
    components: tuple[str, ...]
    went_through_link: bool = False
    """True if a link from outside leads into the root. A link to the root itself does not count."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The session's folders by their real paths. Relative paths start at the first folder."""

    folders: tuple[str, ...]
    protected: PathSet = PathSet()
    """Paths that the session may neither read nor change, such as Holdfast's data."""
    guarded_names: frozenset[str] = frozenset()
    """Names of files and folders that the session may read, but not change."""
    folder_ids: tuple[tuple[int, int] | None, ...] = ()
    """Device and inode of each folder when the session got it; None if it did not exist."""
    find_read_only: Callable[[], Sequence[str]] | None = None
    """Finds paths that the session may read, but not change, such as folders with programs that run unconfined in other sessions.
    Called before each change: the paths differ once the user has approved another program."""

    @classmethod
    def of(
        cls,
        folders: Sequence[str],
        protected: PathSet,
        guarded_names: Collection[str] = (),
        find_read_only: Callable[[], Sequence[str]] | None = None,
    ) -> "Roots":
        """Make the roots of a session that gets these folders now."""
        return cls(
            tuple(folders),
            protected,
            frozenset(map(comparable_name, guarded_names)),
            tuple(map(_folder_id, folders)),
            find_read_only,
        )

    def read_only_now(self) -> PathSet:
        """Return the paths that the session may not change at this moment. Blocks."""
        return (
            PathSet.of(self.find_read_only(), with_files=True)
            if self.find_read_only is not None
            else PathSet()
        )

    def check_same_folder(self, root: str, folder_fd: int | None) -> None:
        """Raise if the folder at the root's path is not the one that the session got. `folder_fd` is None if it is missing."""
        expected = dict(zip(self.folders, self.folder_ids, strict=False)).get(root)
        if expected is not None and (folder_fd is None or _device_and_inode(os.fstat(folder_fd)) != expected):
            raise HoldfastError(
                codes.FILE_ERROR,
                f"The session's folder {root!r} was moved, deleted or replaced since the session got it. "
                "Nothing was read or written. Put the folder back, or open a new session.",
            )

    def is_guarded(self, name: str, folder_fd: int, status: os.stat_result | None) -> bool:
        """Return whether the session may not change a file or folder with this name, or anything in such a folder.

        `folder_fd` is the folder that contains it, and `status` its status there, None if it does not exist. On some file systems,
        `GIT~1` is another name of `.git`, so a name with a tilde is guarded if a guarded name is the same file or folder.
        """
        if not self.guarded_names:
            return False
        if comparable_name(name) in self.guarded_names:
            return True
        if status is None or "~" not in name:
            return False
        guarded_statuses = (_status_in(folder_fd, guarded) for guarded in self.guarded_names)
        return any(guarded and os.path.samestat(guarded, status) for guarded in guarded_statuses)

    def resolve(self, path: str) -> RootedPath:
        """Find the root of a path. Nothing in the path is decoded or expanded, such as `%2e` or `~`."""
        _check_path(path)
        if not path.startswith("/"):
            return RootedPath(self.folders[0], _components(path))
        rooted = self._find_root(path) or self._find_root_through_link(path)
        if rooted is None:
            raise outside_error(path, self.folders)
        return rooted

    def display_path(self, real_path: str) -> str:
        """Return a real path relative to the first root, or whole if it is in another root. Bytes that are not UTF-8 are replaced."""
        first = self.folders[0]
        if real_path == first:
            return "."
        return replace_invalid_utf8(real_path.removeprefix(first.rstrip("/") + "/"))

    def folders_outside(self, real_path: str) -> list[str]:
        """Return the session's folders that are not inside this folder."""
        within = real_path.rstrip("/") + "/"
        return [folder for folder in self.folders if folder != real_path and not folder.startswith(within)]

    def _find_root_through_link(self, path: str) -> RootedPath | None:
        """Find the root that a path from outside of all roots reaches through a link, in at most `_MAX_OUTSIDE_COMPONENTS` components.

        If the link leads to a root or to a folder above it, such as /tmp on macOS, the rest of the path is returned unchanged.
        """
        pending = deque(_components(path))
        own_components_left, link_count = len(pending), 0
        names: list[str] = []
        for _ in range(_MAX_OUTSIDE_COMPONENTS):
            if not pending:
                rooted = self._find_root("/" + "/".join(names))
                return replace(rooted, went_through_link=True) if rooted is not None else None
            component = pending.popleft()
            target = None
            if component == "..":
                del names[-1:]
            else:
                names.append(component)
                with suppress(OSError):  # not a link, or nothing there
                    target = os.readlink("/" + "/".join(names))  # noqa: PTH115
            if target is not None:
                link_count += 1
                if link_count > MAX_LINKS:
                    return None
                del names[0 if target.startswith("/") else -1 :]
                pending.extendleft(reversed(_components(target)))
            if len(pending) < own_components_left:
                # All components of link targets are done: `pending` is the rest of the caller's path.
                own_components_left = len(pending)
                if (real_path := "/" + "/".join(names)) in self.folders:
                    return RootedPath(real_path, tuple(pending))
        return None

    def _find_root(self, path: str) -> RootedPath | None:
        for root in sorted(self.folders, key=len, reverse=True):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return RootedPath(root, _components(path.removeprefix(root)))
        return None


def _status_in(folder_fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return None


def outside_error(path: str, folders: tuple[str, ...]) -> HoldfastError:
    """Return the error for a path that leads out of the roots."""
    return HoldfastError(
        codes.OUTSIDE_ROOTS, f"{path[:200]!r} is outside this session's folders: {', '.join(folders)}."
    )


def protected_error(path: str) -> HoldfastError:
    """Return the error for a path that leads to Holdfast's own files."""
    return HoldfastError(
        codes.DENIED,
        f"{path[:200]!r} belongs to Holdfast: sessions cannot read or change its data, keys or settings. "
        "The user can, outside of Holdfast.",
    )


def guarded_error(path: str, real_path: str) -> HoldfastError:
    """Return the error for a change to a file that the user's own programs load as configuration or execute."""
    return HoldfastError(
        codes.DENIED,
        f"{path[:200]!r} is, or is in, {real_path!r}. The user's own programs load such files as configuration or execute "
        "them, so a sandboxed session cannot change them. The user or a direct session can.",
    )


def read_only_error(path: str, real_path: str) -> HoldfastError:
    """Return the error for a change to Holdfast's own code, to a folder with programs that run unconfined, or to an `AGENTS.md`."""
    return HoldfastError(
        codes.DENIED,
        f"{path[:200]!r} is, or is in, {real_path!r}. Programs run from it outside the sandbox, or agents follow its instructions, so a"
        " sandboxed session cannot change it. The user or a direct session can.",
    )


def link_error(path: str, target: str | None) -> HoldfastError:
    """Return the error for a change through a link."""
    advice = f"Use the path of the file itself: {target!r}." if target else "Use a path without links."
    return HoldfastError(
        codes.BAD_PATH,
        f"{path[:200]!r} leads through a link, and files are not changed through links. {advice}",
    )


def comparable_name(name: str) -> str:
    """Return a form of the name that is the same for all spellings that a file system may treat as one name.

    Some file systems ignore case and invisible characters (HFS+; ext4 and F2FS with case folding), or dots and spaces at the end
    (FAT, NTFS), or accept a stream name after a colon (NTFS). For short names, such as `GIT~1`, see `Roots.is_guarded`.
    """
    visible = replace_invisible(normalize("NFKC", name).casefold(), lambda _: "")
    return normalize("NFKC", visible.partition(":")[0].rstrip(". "))


def _components(path: str) -> tuple[str, ...]:
    return tuple(component for component in path.split("/") if component not in ("", "."))


def _check_path(path: str) -> None:
    if not path:
        raise HoldfastError(codes.BAD_PATH, "The path is empty. Use '.' for the session's folder.")
    if "\0" in path or not _is_encodable(path):
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} has a character that is not allowed in a path.")
    if len(os.fsencode(path)) >= _MAX_PATH_BYTES:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r}… is too long for a path.")
    if "://" in path:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} is a URL. Give a path.")
    for component in path.split("/"):
        if _is_encoded_component(component):
            raise HoldfastError(
                codes.BAD_PATH,
                f"{component[:80]!r} is a percent-encoded path component. Write it without encoding.",
            )


def _is_encoded_component(component: str) -> bool:
    """Return whether a component decodes to `.` or `..`, or to a name with a slash or NUL, even if it is encoded several times.

    An editor may turn the path into a URL, and decode the URL.
    """
    while (decoded := unquote(component)) != component:
        if decoded in (".", "..") or "/" in decoded or "\0" in decoded:
            return True
        component = decoded
    return False


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path).decode()
    except UnicodeError:
        return False
    return True


def _folder_id(path: str) -> tuple[int, int] | None:
    status = _status(path)
    return _device_and_inode(status) if status is not None and stat.S_ISDIR(status.st_mode) else None


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:  # nothing is at this path yet, so only the path is compared
        return None


def _device_and_inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
