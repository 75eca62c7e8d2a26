"""Walk a path one step at a time from open folder descriptors, so that no link can lead outside of the roots.

A path that was checked can lead elsewhere a moment later. So nothing here is checked first and opened by name later:
every step is opened relative to the descriptor of the step before and never follows a link. A link is read, and its
target is walked step by step. After `..`, the path above is walked again from the root, so that only two folders are
open at a time, however deep the path is. Nothing here is specific to Linux.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.builtin.files.roots import Roots, guarded_error, link_error, outside_error, protected_error
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.untrusted_file import UnusableFileError, open_untrusted_file

_MAX_LINKS = 40
_MAX_STEPS = 10_000
# With O_PATH, the parent folders of a path need not be readable; on systems without O_PATH they must be.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PathHandle:
    """A name in an open folder. It may be a file, a folder or nothing yet; a link is never followed."""

    folder_fd: int
    name: str
    real: str
    """The path without links, at the time of the walk."""


@contextmanager
def open_path(
    roots: Roots, path: str, *, to_change: bool = False, make: bool = False
) -> Iterator[PathHandle]:
    """Walk to a path; with `make`, create its missing parent folders.

    A path `to_change` may contain no link and no guarded name: the user who permits the change sees this path, and
    must see the file that is changed.
    """
    walk = _Walk(roots, path, to_change=to_change, make=make)
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


def os_error(path: str, error: OSError) -> HoldfastError:
    """Convert an error of the operating system into one with a code and the path."""
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

    def __init__(self, roots: Roots, path: str, *, to_change: bool, make: bool) -> None:
        self._roots = roots
        self._path = path
        self._to_change = to_change
        self._make = make
        self._is_by_link = False
        self._folder_fd = -1
        self._names: list[str] = []
        self._root = ""
        self._steps: deque[str] = deque()

    def run(self) -> PathHandle:
        try:
            handle = self._walk()
        except FileNotFoundError:
            if self._to_change and self._is_by_link:
                raise link_error(self._path, None) from None
            raise
        if self._to_change and self._is_by_link:
            raise link_error(self._path, self._roots.display_path(handle.real))
        return handle

    def close(self) -> None:
        self._move_to(-1)

    def _walk(self) -> PathHandle:
        self._start_at(self._path)
        links = walked = 0
        while self._steps:
            walked += 1
            if walked > _MAX_STEPS:
                raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many steps.")
            step = self._steps.popleft()
            if step == "..":
                self._leave()
                continue
            target = self._read_link(step)
            if target is not None:
                links += 1
                if links > _MAX_LINKS:
                    raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many links.")
                self._follow(target)
            else:
                self._check_protected(step)
                if not self._steps:
                    return PathHandle(self._folder_fd, step, self._real(step))
                self._enter(step)
        return PathHandle(self._folder_fd, ".", self._real())

    def _start_at(self, path: str) -> None:
        rooted = self._roots.resolve(path)
        self._is_by_link |= rooted.is_by_link
        self._restart(rooted.root, rooted.steps)

    def _restart(self, root: str, steps: Sequence[str]) -> None:
        """Go to a root, to walk these steps first."""
        self._names.clear()
        self._root = root
        try:
            self._move_to(_open_root(root))
        except FileNotFoundError:
            self._roots.check_same_folder(root, None)
            raise
        self._roots.check_same_folder(root, self._folder_fd)
        self._check_protected(".")
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
        self._is_by_link = True
        if target.startswith("/"):
            try:
                self._start_at(target)
            except HoldfastError as error:
                if error.code is codes.DENIED:
                    raise
                raise outside_error(self._path, self._roots.folders) from None
        else:
            self._steps.extendleft(reversed([step for step in target.split("/") if step not in ("", ".")]))

    def _check_protected(self, step: str) -> None:
        """Raise if this step is protected, before anything is created or opened there."""
        try:
            status = os.stat(step, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        real = self._real() if step == "." else self._real(step)
        if self._roots.protected.contains(real, status):
            raise protected_error(self._path)
        if self._to_change and step != "." and self._roots.is_guarded(step):
            raise guarded_error(self._path, self._roots.display_path(real))

    def _enter(self, step: str) -> None:
        if self._make and not self._is_by_link:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=self._folder_fd)
        self._move_to(os.open(step, _FOLDER, dir_fd=self._folder_fd))
        self._names.append(step)

    def _move_to(self, folder_fd: int) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
        self._folder_fd = folder_fd

    def _real(self, *last: str) -> str:
        return "/".join([self._root.rstrip("/"), *self._names, *last]) or "/"


def _open_root(path: str) -> int:
    """Open a root by its real path; fails if any part of the path has become a link."""
    folder_fd = os.open("/", _FOLDER)
    for step in path.strip("/").split("/") if path != "/" else ():
        try:
            next_fd = os.open(step, _FOLDER, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        folder_fd = next_fd
    return folder_fd
