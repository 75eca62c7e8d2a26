"""Open paths step by step, and keep a descriptor of each step open, so that a checked path cannot be replaced later."""

import errno
import os
import stat
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

Identity = tuple[int, int]
"""A file's device and inode."""
SymlinkPolicy = Literal["refuse", "in folders", "follow"]
"""What to do with symbolic links: fail, follow all but a link at the end, or follow all."""

_MAX_LINKS = 40
_MAX_STEPS = 400  # of one holder; each holds a descriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPath:
    """A file, folder or link, opened with `O_PATH`. It stays the same even if its path is changed."""

    path: str
    """Its real path, at the time it was opened."""
    fd: int
    status: os.stat_result
    folder: "HeldPath | None"
    """The folder that contains it; None for `/`."""
    rest: tuple[str, ...] = ()
    """The rest of the path, which was not opened because this is a folder in `stop_at`."""

    @property
    def identity(self) -> Identity:
        """Its device and inode."""
        return self.status.st_dev, self.status.st_ino

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file: not a FIFO, a socket or a device."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def self_and_parents(self) -> Iterator["HeldPath"]:
        """Itself, its folder, and so on up to `/`."""
        step: HeldPath | None = self
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


class PathHolder:
    """Opens paths. It does not look into the folders in `stop_at`, whose content a confined server can change."""

    def __init__(self, opened: ExitStack, stop_at: Collection[Identity] = ()) -> None:
        self._opened = opened
        """Closes every descriptor that was opened."""
        self.stop_at = stop_at
        self._top: HeldPath | None = None
        self._steps = 0

    def open(self, path: str, *, links: SymlinkPolicy, start: HeldPath | None = None) -> HeldPath:
        """Open a path, which may be relative to `start`. If it leads into a folder in `stop_at`, return that folder."""
        names = deque(path.split("/"))
        here = self._root() if path.startswith("/") or start is None else start
        followed = 0
        while names:
            name = names.popleft()
            if name == "..":
                here = here.folder or here
            if name in ("", ".", ".."):
                continue
            step = self._step(here, name)
            if not step.is_link:
                here = step
                if step.identity in self.stop_at:
                    return self._with_rest(step, names)
                continue
            followed += 1
            is_last = not any(names)
            if is_last and links == "in folders":
                return step
            if links == "refuse" or followed > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = step.link_target()
            here = self._root() if target.startswith("/") else here
            names.extendleft(reversed(target.split("/")))
        return here

    def open_below(self, folder: HeldPath, names: Collection[str]) -> HeldPath:
        """Open what is at `names` below a folder. Return the first symbolic link on the way. Fail at a folder in `stop_at`."""
        here = folder
        for name in names:
            if here.is_link:
                return here
            if name == "..":
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here.path)
            here = self._step(here, name)
            if here.identity in self.stop_at:
                raise OSError(errno.ELOOP, "this is a root", here.path)
        return here

    def child(self, folder: HeldPath, name: str) -> HeldPath | None:
        """The file with this name in a folder; None if it is missing, or a folder in `stop_at`. Links are not followed."""
        try:
            return self.open_below(folder, (name,))
        except OSError:
            return None

    def _root(self) -> HeldPath:
        if self._top is None:
            fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
            self._opened.callback(os.close, fd)
            self._top = HeldPath(path="/", fd=fd, status=os.fstat(fd), folder=None)
        return self._top

    def _step(self, folder: HeldPath, name: str) -> HeldPath:
        path = f"{folder.path.rstrip('/')}/{name}"
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise OSError(errno.ENAMETOOLONG, "too many folders and links on the way", path)
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        self._opened.callback(os.close, fd)
        return HeldPath(path=path, fd=fd, status=os.fstat(fd), folder=folder)

    def _with_rest(self, step: HeldPath, names: Collection[str]) -> HeldPath:
        rest = tuple(name for name in names if name not in ("", "."))
        return HeldPath(path=step.path, fd=step.fd, status=step.status, folder=step.folder, rest=rest)
