"""Walks a path one step at a time from open folder descriptors, so that no link can lead outside of the roots.

A path that was checked can lead elsewhere a moment later. So no path is checked first and opened by its name later.
Every step is opened relative to the descriptor of the step before, and without following links. If a step is a link,
the link is read, and its target is also walked step by step. After `..`, the path is walked again from the root, so
that at most two folders are open at a time. All of this works on every POSIX system.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.builtin.files.attributes import give_to_folder_owner
from holdfast.builtin.files.roots import (
    MAX_LINKS,
    PathSet,
    Roots,
    guarded_error,
    link_error,
    outside_error,
    protected_error,
    read_only_error,
)
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.untrusted_file import UnusableFileError, open_untrusted_file

_MAX_STEPS = 4096
# With O_PATH, the parent folders of a path need not be readable; on systems without O_PATH they must be.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PathHandle:
    """A name in an open folder: a file, a folder, or nothing yet. A link is never followed."""

    folder_fd: int
    name: str
    real: str
    """The path without links, at the time of the walk."""


@contextmanager
def open_path(
    roots: Roots, path: str, *, for_writing: bool = False, make_parents: bool = False
) -> Iterator[PathHandle]:
    """Walk to a path. With `make_parents`, create its missing parent folders.

    With `for_writing`, raise if the session may not change the path. Links are refused, too: the user who allows a
    change sees this path, so it must be the path of the file that changes.
    """
    walk = _Walk(roots, path, for_writing=for_writing, make_parents=make_parents)
    try:
        yield walk.run()
    except OSError as error:
        raise os_error(path, error) from None
    finally:
        walk.close()


def open_file(handle: PathHandle) -> int:
    """Open a regular file for reading. Anything else, such as a FIFO or a device, is not opened."""
    return open_untrusted_file(handle.name, dir_fd=handle.folder_fd, follow_link=False)


def open_folder(handle: PathHandle) -> int:
    """Open a folder for listing."""
    return os.open(
        handle.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle.folder_fd
    )


def enter_folder(handle: PathHandle) -> int:
    """Open a folder to start a program in it. It need not be readable."""
    return os.open(handle.name, _FOLDER_FLAGS, dir_fd=handle.folder_fd)


def os_error(path: str, error: OSError) -> HoldfastError:
    """Convert an error from the operating system to one with a code and the path."""
    shown = repr(path[:200])
    if isinstance(error, UnusableFileError):
        return HoldfastError(codes.NOT_A_FILE, f"{shown} is {error.strerror}.")
    match error.errno:
        case errno.ENOENT:
            return HoldfastError(codes.NO_FILE, f"There is nothing at {shown}.")
        case errno.ELOOP:
            return HoldfastError(codes.FILE_CHANGED, f"{shown} became a link while it was being opened.")
        case errno.ENOTDIR:
            return HoldfastError(
                codes.NOT_A_FILE, f"{shown} is not a folder, or a part of the path is not a folder."
            )
        case errno.EISDIR:
            return HoldfastError(codes.NOT_A_FILE, f"{shown} is a folder.")
        case errno.ENXIO:
            return HoldfastError(codes.NOT_A_FILE, f"{shown} is not a regular file.")
        case _:
            words = (error.strerror or "unknown error").lower()
            return HoldfastError(codes.FILE_ERROR, f"{shown} cannot be used: {words}.")


class _Walk:
    """Walks one path, and keeps only the current folder open."""

    def __init__(self, roots: Roots, path: str, *, for_writing: bool, make_parents: bool) -> None:
        self._roots = roots
        self._path = path
        self._for_writing = for_writing
        self._make_parents = make_parents
        self._read_only = roots.read_only_now() if for_writing else PathSet()
        self._went_through_link = False
        self._folder_fd = -1
        self._root = ""
        self._names: list[str] = []
        """The names of the folders from the root to the current folder."""
        self._steps: deque[str] = deque()
        """The steps that remain."""

    def run(self) -> PathHandle:
        try:
            handle = self._walk()
        except FileNotFoundError:
            if self._for_writing and self._went_through_link:
                raise link_error(self._path, None) from None
            raise
        if self._for_writing and self._went_through_link:
            raise link_error(self._path, self._roots.display_path(handle.real))
        return handle

    def close(self) -> None:
        self._move_to(-1)

    def _walk(self) -> PathHandle:
        self._start_at(self._path)
        link_count = step_count = 0
        while self._steps:
            step_count += 1
            if step_count > _MAX_STEPS:
                raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many steps.")
            step = self._steps.popleft()
            if step == "..":
                self._leave()
                continue
            target = self._read_link(step)
            if target is not None:
                link_count += 1
                if link_count > MAX_LINKS:
                    raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many links.")
                self._follow(target)
            else:
                self._check_access(step)
                if not self._steps:
                    return PathHandle(self._folder_fd, step, self._real(step))
                self._enter(step)
        return PathHandle(self._folder_fd, ".", self._real())

    def _start_at(self, path: str) -> None:
        rooted = self._roots.resolve(path)
        self._went_through_link |= rooted.went_through_link
        self._restart(rooted.root, rooted.steps)

    def _restart(self, root: str, steps: Sequence[str]) -> None:
        """Go back to a root, and put these steps before those that remain."""
        self._names.clear()
        self._root = root
        try:
            self._move_to(_open_root(root))
        except FileNotFoundError:
            self._roots.check_same_folder(root, None)
            raise
        self._roots.check_same_folder(root, self._folder_fd)
        self._check_access(".")
        self._steps.extendleft(reversed(steps))

    def _leave(self) -> None:
        if not self._names:
            raise outside_error(self._path, self._roots.folders)
        self._restart(self._root, self._names[:-1])

    def _read_link(self, step: str) -> str | None:
        try:
            return os.readlink(step, dir_fd=self._folder_fd)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _follow(self, target: str) -> None:
        self._went_through_link = True
        if target.startswith("/"):
            try:
                self._start_at(target)
            except HoldfastError as error:
                if error.code is codes.DENIED:
                    raise
                raise outside_error(self._path, self._roots.folders) from None
        else:
            self._steps.extendleft(reversed([step for step in target.split("/") if step not in ("", ".")]))

    def _check_access(self, step: str) -> None:
        """Raise if the session may not access this step. It must be called before the step is opened or created."""
        try:
            status = os.stat(step, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        real = self._real() if step == "." else self._real(step)
        if self._roots.protected.contains(real, status):
            raise protected_error(self._path)
        if not self._for_writing:
            return
        if step != "." and self._roots.is_guarded(step, self._folder_fd, status):
            raise guarded_error(self._path, self._roots.display_path(real))
        if self._read_only.contains(real, status):
            raise read_only_error(self._path, self._roots.display_path(real))

    def _enter(self, step: str) -> None:
        if self._make_parents and not self._went_through_link:
            with suppress(FileExistsError):
                _make_folder(step, self._folder_fd)
        self._move_to(os.open(step, _FOLDER_FLAGS, dir_fd=self._folder_fd))
        self._names.append(step)

    def _move_to(self, folder_fd: int) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
        self._folder_fd = folder_fd

    def _real(self, *last: str) -> str:
        return "/".join([self._root.rstrip("/"), *self._names, *last]) or "/"


def _make_folder(name: str, parent_fd: int) -> None:
    """Create a folder. If root creates it, give it to the owner of its parent."""
    os.mkdir(name, dir_fd=parent_fd)
    if os.geteuid() == 0:
        # Not `_FOLDER_FLAGS`: the owner of a folder cannot be changed through `O_PATH`.
        folder_fd = os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd
        )
        try:
            if not os.listdir(folder_fd):  # noqa: PTH208 - else another program has put its own folder there
                give_to_folder_owner(folder_fd, os.fstat(parent_fd))
        finally:
            os.close(folder_fd)


def _open_root(path: str) -> int:
    """Open a root by its real path. Fails if any part of the path has become a link."""
    folder_fd = os.open("/", _FOLDER_FLAGS)
    for step in path.strip("/").split("/") if path != "/" else ():
        try:
            next_fd = os.open(step, _FOLDER_FLAGS, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        folder_fd = next_fd
    return folder_fd
