"""Open paths one name at a time, so that no link is followed unnoticed. What was opened stays open, so it cannot be replaced later.

The folders on the way are closed again, because a deep path would need many descriptors. Their device and inode are kept.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

Identity = tuple[int, int]
"""A file's device and inode."""
SymlinkPolicy = Literal["refuse", "keep_last", "follow"]
"""What to do with symbolic links: `refuse` fails, `follow` follows them, `keep_last` follows them but opens a link at the end of
the path instead of its target."""

_MAX_LINKS = 40  # as in the kernel
_MAX_STEPS = 1000  # names that one `PathOpener` opens
_CLOSED = -1
_TOO_MANY_FILES = "The sandbox cannot be prepared: too many files are open. Close some sessions, or raise the limit (ulimit -n)."


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPath:
    """A file, folder or link that was opened with `O_PATH`. It stays the same even if its path is changed."""

    path: str
    """Its real path, at the time it was opened."""
    fd: int
    """-1 if it is a folder on the way to another path: those are closed again. See `PathOpener.reopen`."""
    status: os.stat_result
    folder: "OpenedPath | None"
    """The folder that contains it, with `fd` -1; None for `/`."""
    rest: tuple[str, ...] = ()
    """The names that `PathOpener` did not open, because this folder is in its `stop_at`."""

    @property
    def identity(self) -> Identity:
        return self.status.st_dev, self.status.st_ino

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file: not a FIFO, a socket or a device."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def self_and_parents(self) -> Iterator["OpenedPath"]:
        """Itself, its folder, and so on up to `/`."""
        step: OpenedPath | None = self
        while step is not None:
            yield step
            step = step.folder

    def link_target(self) -> str:
        """The target of a symbolic link, as written."""
        return os.readlink("", dir_fd=self.fd)

    def open_to_read(self) -> int:
        """A descriptor to read a regular file or a folder with. The caller closes it."""
        assert self.is_file or self.is_folder
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read_start(self, size: int) -> bytes:
        """The beginning of a regular file; empty if it cannot be read."""
        try:
            descriptor = self.open_to_read()
        except OSError:
            return b""
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSet:
    """Folders, recognised by device and inode, or by their real paths."""

    identities: Collection[Identity] = ()
    paths: Collection[str] = ()

    def __contains__(self, opened: OpenedPath) -> bool:
        return opened.identity in self.identities or opened.path in self.paths


NO_FOLDERS = FolderSet()


class PathOpener:
    """Opens paths, and keeps them open until `resources` is closed.

    `open` stops at the folders in `stop_at`, whose content a confined server can change; use `open_below` to look inside one.
    """

    def __init__(self, resources: ExitStack, stop_at: FolderSet = NO_FOLDERS) -> None:
        self._fds: set[int] = set()
        resources.callback(self._close_all)
        self.stop_at = stop_at
        self._steps = 0

    def open(self, path: str, *, links: SymlinkPolicy, start: OpenedPath | None = None) -> OpenedPath:
        """Open a path, which may be relative to `start`. If it leads into a folder in `stop_at`, return that folder."""
        return self._open(path, links=links, start=start, stop_at=self.stop_at)

    def _open(
        self, path: str, *, links: SymlinkPolicy, start: OpenedPath | None, stop_at: FolderSet
    ) -> OpenedPath:
        names = deque(path.split("/"))
        here = self._file_system_root() if path.startswith("/") or start is None else self._duplicate(start)
        followed = 0
        try:
            while names:
                name = names.popleft()
                if name in ("", "."):
                    continue
                step = self._parent(here) if name == ".." else self._step(here, name)
                if not step.is_link:
                    here = self._move(here, step)
                    if name != ".." and step in stop_at:
                        return self._with_rest(step, names)
                    continue
                followed += 1
                is_last = not any(names)
                if is_last and links == "keep_last":
                    return self._move(here, step)
                target = step.link_target()
                self._close(step)
                if links == "refuse" or followed > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                here = self._move(here, self._file_system_root()) if target.startswith("/") else here
                names.extendleft(reversed(target.split("/")))
        except BaseException:
            self._close(here)
            raise
        return here

    def open_below(self, folder: OpenedPath, names: Collection[str]) -> OpenedPath:
        """Open the path `names` below a folder. Return the first symbolic link on the way, if there is one.

        Fail if the path leads to a folder in `stop_at`.
        """
        here = self._duplicate(folder)
        try:
            for name in names:
                if here.is_link:
                    return here
                if name == "..":
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here.path)
                here = self._move(here, self._step(here, name))
                if here in self.stop_at:
                    raise OSError(errno.ELOOP, "this is a root", here.path)
        except BaseException:
            self._close(here)
            raise
        return here

    def reopen(self, folder: OpenedPath) -> OpenedPath:
        """Open a folder that was closed because it was only on the way. Fail if it has been replaced.

        Folders in `stop_at` do not stop it: the caller has already looked inside them with `open_below`.
        """
        if folder.fd != _CLOSED:
            return folder
        opened = self._open(folder.path, links="refuse", start=None, stop_at=NO_FOLDERS)
        if opened.identity != folder.identity:
            self._close(opened)
            raise OSError(errno.ESTALE, "it was replaced while the server was being started", folder.path)
        return opened

    def child(self, folder: OpenedPath, name: str) -> OpenedPath | None:
        """The file, folder or link with this name in a folder.

        None if it cannot be opened (it is missing, or permission is denied), or if it is a folder in `stop_at`.
        """
        try:
            return self.open_below(folder, (name,))
        except OSError:
            return None

    def close(self, opened: OpenedPath) -> None:
        """Close a path before `resources` is closed."""
        self._close(opened)

    def _file_system_root(self) -> OpenedPath:
        fd = self._open_fd("/", "/")
        return OpenedPath(path="/", fd=fd, status=os.fstat(fd), folder=None)

    def _duplicate(self, opened: OpenedPath) -> OpenedPath:
        """The same file with a descriptor of its own, which can be closed."""
        if opened.fd == _CLOSED:
            return self.reopen(opened)
        fd = os.dup(opened.fd)
        self._fds.add(fd)
        return replace(opened, fd=fd)

    def _step(self, folder: OpenedPath, name: str) -> OpenedPath:
        path = f"{folder.path.rstrip('/')}/{name}"
        fd = self._open_fd(name, path, folder.fd)
        return OpenedPath(path=path, fd=fd, status=os.fstat(fd), folder=replace(folder, fd=_CLOSED))

    def _parent(self, here: OpenedPath) -> OpenedPath:
        if here.folder is None:
            return self._duplicate(here)
        fd = self._open_fd("..", here.folder.path, here.fd)
        parent = replace(here.folder, fd=fd, status=os.fstat(fd))
        if parent.identity != here.folder.identity:
            self._close(parent)
            raise OSError(errno.ESTALE, "a folder was moved while the server was being started", here.path)
        return parent

    def _move(self, here: OpenedPath, step: OpenedPath) -> OpenedPath:
        self._close(here)
        return step

    def _open_fd(self, name: str, path: str, folder_fd: int | None = None) -> int:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise OSError(errno.ENAMETOOLONG, "too many folders and links on the way", path)
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # callers treat an OSError as a missing file
                raise HoldfastError(codes.SPAWN_FAILED, _TOO_MANY_FILES) from None
            raise OSError(error.errno, error.strerror, path) from None
        self._fds.add(fd)
        return fd

    def _close(self, opened: OpenedPath) -> None:
        if opened.fd in self._fds:
            self._fds.remove(opened.fd)
            os.close(opened.fd)

    def _close_all(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def _with_rest(self, step: OpenedPath, names: Collection[str]) -> OpenedPath:
        rest = tuple(name for name in names if name not in ("", "."))
        return OpenedPath(path=step.path, fd=step.fd, status=step.status, folder=step.folder, rest=rest)
