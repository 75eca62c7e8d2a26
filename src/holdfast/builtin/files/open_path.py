"""Opens a path one component at a time from open folder descriptors, so that no symbolic link can lead outside of the roots.

A path that was checked can lead elsewhere a moment later, so it is not enough to check a path and then open it by name. Each
component is opened relative to the descriptor of its parent folder, without following symbolic links (here: links). If a
component is a link, the link is read, and its target is walked in the same way. After `..`, the path is walked again from the
root, so that at most two folders are open at a time. All of this works on every POSIX system.
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

_MAX_COMPONENTS = 4096
# With O_PATH, the parent folders of a path need not be readable; on systems without O_PATH they must be.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PathHandle:
    """A name in an open folder. There may be a file or a folder with this name, or nothing yet. The name is not that of a link."""

    folder_fd: int
    name: str
    real_path: str
    """The path after all links in it were followed."""


@contextmanager
def open_path(
    roots: Roots, path: str, *, for_writing: bool = False, make_parents: bool = False
) -> Iterator[PathHandle]:
    """Open the folder that contains a path. With `make_parents`, create missing parent folders.

    With `for_writing`, raise if the session may not change the path, or if there is a link in it: the user who allows a
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


def open_working_folder(handle: PathHandle) -> int:
    """Open a folder to start a program in it. Unlike for `open_folder`, the folder need not be readable."""
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
    """Opens one path, component by component. Only the current folder stays open."""

    def __init__(self, roots: Roots, path: str, *, for_writing: bool, make_parents: bool) -> None:
        self._roots = roots
        self._path = path
        self._for_writing = for_writing
        self._make_parents = make_parents
        self._read_only = roots.read_only_now() if for_writing else PathSet()
        self._went_through_link = False
        self._folder_fd = -1  # -1: no folder is open
        self._root = ""
        self._names: list[str] = []
        """The names of the folders from the root to the current folder."""
        self._components: deque[str] = deque()
        """The components that remain."""

    def run(self) -> PathHandle:
        try:
            handle = self._walk()
        except FileNotFoundError:
            if self._for_writing and self._went_through_link:
                raise link_error(self._path, None) from None
            raise
        if self._for_writing and self._went_through_link:
            raise link_error(self._path, self._roots.display_path(handle.real_path))
        return handle

    def close(self) -> None:
        self._move_to(-1)

    def _walk(self) -> PathHandle:
        self._start_at(self._path)
        link_count = component_count = 0
        while self._components:
            component_count += 1
            if component_count > _MAX_COMPONENTS:
                raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many components.")
            component = self._components.popleft()
            if component == "..":
                self._leave()
                continue
            target = self._read_link(component)
            if target is not None:
                link_count += 1
                if link_count > MAX_LINKS:
                    raise HoldfastError(codes.BAD_PATH, f"{self._path[:200]!r} has too many links.")
                self._follow(target)
            else:
                self._check_access(component)
                if not self._components:
                    return PathHandle(self._folder_fd, component, self._real(component))
                self._enter(component)
        return PathHandle(self._folder_fd, ".", self._real())

    def _start_at(self, path: str) -> None:
        rooted = self._roots.resolve(path)
        self._went_through_link |= rooted.went_through_link
        self._restart(rooted.root, rooted.components)

    def _restart(self, root: str, components: Sequence[str]) -> None:
        """Go back to a root, and put these components before those that remain."""
        self._names.clear()
        self._root = root
        try:
            self._move_to(_open_root(root))
        except FileNotFoundError:
            self._roots.check_same_folder(root, None)
            raise
        self._roots.check_same_folder(root, self._folder_fd)
        self._check_access(".")
        self._components.extendleft(reversed(components))

    def _leave(self) -> None:
        """Go to the parent folder, for `..`."""
        if not self._names:
            raise outside_error(self._path, self._roots.folders)
        self._restart(self._root, self._names[:-1])

    def _read_link(self, component: str) -> str | None:
        """Return the target of a link; None if the component is not a link or does not exist."""
        try:
            return os.readlink(component, dir_fd=self._folder_fd)
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
                # The error names the path that the caller gave, not the link's target.
                raise outside_error(self._path, self._roots.folders) from None
        else:
            self._components.extendleft(
                reversed([component for component in target.split("/") if component not in ("", ".")])
            )

    def _check_access(self, component: str) -> None:
        """Raise if the session may not access this component. It must be called before the component is opened or created."""
        try:
            status = os.stat(component, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        real_path = self._real() if component == "." else self._real(component)
        if self._roots.protected.contains(real_path, status):
            raise protected_error(self._path)
        if not self._for_writing:
            return
        if component != "." and self._roots.is_guarded(component, self._folder_fd, status):
            raise guarded_error(self._path, self._roots.display_path(real_path))
        if self._read_only.contains(real_path, status):
            raise read_only_error(self._path, self._roots.display_path(real_path))

    def _enter(self, component: str) -> None:
        if self._make_parents and not self._went_through_link:
            with suppress(FileExistsError):
                _make_folder(component, self._folder_fd)
        self._move_to(os.open(component, _FOLDER_FLAGS, dir_fd=self._folder_fd))
        self._names.append(component)

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
            # If the folder is not empty, another program has replaced it by its own.
            if not os.listdir(folder_fd):  # noqa: PTH208
                give_to_folder_owner(folder_fd, os.fstat(parent_fd))
        finally:
            os.close(folder_fd)


def _open_root(path: str) -> int:
    """Open a root by its real path. Fails if any part of the path has become a link."""
    folder_fd = os.open("/", _FOLDER_FLAGS)
    for component in path.strip("/").split("/") if path != "/" else ():
        try:
            next_fd = os.open(component, _FOLDER_FLAGS, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        folder_fd = next_fd
    return folder_fd
