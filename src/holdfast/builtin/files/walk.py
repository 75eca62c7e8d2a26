"""Walk a path step by step, each from the folder that is held open: no link leads outside at any moment.

A path that was checked can lead elsewhere a moment later, so nothing here is checked and then opened by name. Every
step is opened from the descriptor of the one before and never follows a link; a link is read, and its own steps are
walked in turn. `..` goes back to the descriptor we came from. It takes nothing that only Linux has.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.builtin.files.roots import Roots, forbidden, outside
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_MOST_LINKS = 40
# A folder that may be passed through need not be readable; where the system has no word for that, it must be.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Spot:
    """A name in a folder that is held open. What has the name may be anything, or nothing yet, but not followed."""

    folder: int
    name: str
    real: str
    """The path without links, as it was when it was walked."""


@contextmanager
def reached(roots: Roots, path: str, *, make: bool = False) -> Iterator[Spot]:
    """Walk to a path; with `make`, folders that are missing on the way are made."""
    walk = _Walk(roots, path, make=make)
    try:
        yield walk.go()
    except OSError as error:
        raise trouble(path, error) from None
    finally:
        walk.close()


def open_file(spot: Spot) -> int:
    """What is there, to be read; never waits, whatever it turns out to be."""
    return os.open(
        spot.name,
        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC,
        dir_fd=spot.folder,
    )


def open_folder(spot: Spot) -> int:
    """A folder, to be listed."""
    return os.open(spot.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=spot.folder)


def trouble(path: str, error: OSError) -> HoldfastError:
    """What the system said, in words that name the path."""
    shown = repr(path[:200])
    match error.errno:
        case errno.ENOENT:
            return HoldfastError(codes.NO_FILE, f"There is nothing at {shown}.")
        case errno.ELOOP:
            return HoldfastError(codes.FILE_CHANGED, f"{shown} turned into a link while it was looked at.")
        case errno.ENOTDIR:
            return HoldfastError(
                codes.NOT_A_FILE, f"{shown} is not a folder, or leads through something that is none."
            )
        case errno.EISDIR:
            return HoldfastError(codes.NOT_A_FILE, f"{shown} is a folder.")
        case errno.ENXIO:
            return HoldfastError(codes.NOT_A_FILE, f"{shown} is no ordinary file.")
        case _:
            words = (error.strerror or "unknown error").lower()
            return HoldfastError(codes.FILE_TROUBLE, f"{shown} cannot be used: {words}.")


class _Walk:
    """The folders passed through, held open from the root on."""

    def __init__(self, roots: Roots, path: str, *, make: bool) -> None:
        self._roots = roots
        self._path = path
        self._make = make
        self._held: list[int] = []
        self._names: list[str] = []
        self._root = ""
        self._todo: deque[str] = deque()

    def go(self) -> Spot:
        self._begin(self._path)
        links = 0
        while self._todo:
            step = self._todo.popleft()
            if step == "..":
                self._back()
                continue
            target = self._link(step)
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise HoldfastError(
                        codes.BAD_PATH, f"{self._path[:200]!r} leads through links without end."
                    )
                self._follow(target)
            else:
                self._check(step)
                if not self._todo:
                    return Spot(self._held[-1], step, self._real(step))
                self._into(step)
        return Spot(self._held[-1], ".", self._real())

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _begin(self, path: str) -> None:
        place = self._roots.place(path)
        self.close()
        self._names.clear()
        self._root = place.root
        self._held.append(_open_root(place.root))
        self._check(".")
        self._todo.extendleft(reversed(place.steps))

    def _back(self) -> None:
        if not self._names:
            raise outside(self._path, self._roots.folders)
        self._names.pop()
        os.close(self._held.pop())

    def _link(self, step: str) -> str | None:
        try:
            return os.readlink(step, dir_fd=self._held[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _follow(self, target: str) -> None:
        if target.startswith("/"):
            try:
                self._begin(target)
            except HoldfastError as error:
                if error.code is codes.DENIED:
                    raise
                raise outside(self._path, self._roots.folders) from None
        else:
            self._todo.extendleft(reversed([step for step in target.split("/") if step not in ("", ".")]))

    def _check(self, step: str) -> None:
        """Refuse to go where nobody may, before anything is made or opened there."""
        try:
            status = os.stat(step, dir_fd=self._held[-1], follow_symlinks=False)
        except FileNotFoundError:
            status = None
        real = self._real() if step == "." else self._real(step)
        if self._roots.off_limits.has(real, status):
            raise forbidden(self._path)

    def _into(self, step: str) -> None:
        if self._make:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=self._held[-1])
        self._held.append(os.open(step, _FOLDER, dir_fd=self._held[-1]))
        self._names.append(step)

    def _real(self, *last: str) -> str:
        return "/".join([self._root.rstrip("/"), *self._names, *last]) or "/"


def _open_root(path: str) -> int:
    """A root by its real path: one that was swapped for a link, anywhere on the way, is not opened."""
    held = os.open("/", _FOLDER)
    for step in path.strip("/").split("/") if path != "/" else ():
        try:
            further = os.open(step, _FOLDER, dir_fd=held)
        finally:
            os.close(held)
        held = further
    return held
