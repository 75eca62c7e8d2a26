"""Locks a file while it is replaced, so that no other session of the same user, in any process, writes it at the same time."""

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from holdfast.builtin.files.roots import comparable_name

_WAIT_SECONDS = 0.02  # short, because waiting blocks the thread: the caller retries later
_PAUSE_SECONDS = 0.001


class FileLock:
    """A lock on one file. Once `try_acquire` has returned True, the lock is held until `release`, or until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "rb"
        )

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Otherwise close this object, and return False."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                return True
        except (BlockingIOError, FileNotFoundError):
            pass  # another session holds the lock, or has just released it and removed its file
        self._file.close()
        return False

    def release(self) -> None:
        # Remove the file before it is unlocked: an unlocked file could already be another session's lock.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


class FileLocks:
    """The locks of one user's sessions.

    The locks are files in Holdfast's own folder. If they were in the project, a server could hold them forever.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def acquire(self, folder_fd: int, name: str) -> FileLock | None:
        """Lock the file with this name in an open folder. Returns None if another session does not release it soon."""
        status = os.fstat(folder_fd)
        spelling = comparable_name(name).encode(errors="surrogateescape")
        key = hashlib.sha256(b"%d %d %s" % (status.st_dev, status.st_ino, spelling)).hexdigest()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            lock = FileLock(self._folder / key)
            if lock.try_acquire():
                return lock
            if time.monotonic() > until:
                return None
            time.sleep(_PAUSE_SECONDS)
