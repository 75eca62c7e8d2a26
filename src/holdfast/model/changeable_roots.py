"""Remembers the folders that a confined server, or a tool of a sandboxed session, could change, even after the session has ended.

A link or a `.pth` file that was left in such a folder must not decide what is mounted for a server that is started later. The
folders are stored by their real paths, because the inode number of a deleted folder is used again.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

CHANGEABLE_ROOTS_FILE = "changed-roots"
_MAX_BYTES = 1024 * 1024
"""If the file gets larger, the folders that no longer exist are removed from it."""

_FileVersion = tuple[int, int, int]  # inode, size, time of the last change


class ChangeableRoots:
    """The folders, in a file that all processes of the user share: a path on each line, as JSON."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[_FileVersion | None, frozenset[str]] = (None, frozenset())
        self._lock = threading.Lock()

    def add(self, paths: Iterable[str]) -> None:
        """Remember these real paths. Blocks; raises if they cannot be stored."""
        try:
            if new := sorted({*paths} - self.paths()):
                self._append(new)
        except OSError as error:
            raise HoldfastError(
                codes.FILE_ERROR,
                f"{str(self._file)!r} cannot be used: {(error.strerror or 'unknown error').lower()}. Check the disk and the"
                " permissions of this file, which lists the folders of sandboxed sessions.",
            ) from None

    def _append(self, new: list[str]) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._file, flags, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                kept = [path for path in _parse(file.read()) if os.path.lexists(path)]
                file.truncate(0)
                new = [*kept, *new]
            # The file may end with a part of a line, if its disk was full.
            file.write(b"".join(b"\n" + json.dumps(path).encode() + b"\n" for path in new))

    def paths(self) -> frozenset[str]:
        """The real paths of all remembered folders. Blocks; the file is read only if it has changed."""
        with self._lock:
            try:
                status = self._file.stat()
                version = status.st_ino, status.st_size, status.st_mtime_ns
                if self._known[0] != version:
                    self._known = version, frozenset(_parse(self._file.read_bytes()))
            except FileNotFoundError:
                self._known = None, frozenset()
            return self._known[1]


def _parse(content: bytes) -> list[str]:
    paths: dict[str, None] = {}
    for line in content.splitlines():
        with suppress(ValueError):
            if isinstance(path := json.loads(line), str):
                paths[path] = None
    return [*paths]
