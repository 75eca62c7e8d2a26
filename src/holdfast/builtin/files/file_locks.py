"""Lock a file while it is replaced, against other sessions and other Holdfast processes of the same user."""

import fcntl
import hashlib
import os
import time
import unicodedata
from contextlib import suppress
from pathlib import Path

_WAIT_SECONDS = 0.02  # longer waits are the caller's, so that no thread is occupied
_PAUSE_SECONDS = 0.001


class FileLock:
    """A lock that is held until `release`, or until this object is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "rb"
        )

    def try_acquire(self) -> bool:
        """Whether the lock was free. If not, this object is closed."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                return True
        except (BlockingIOError, FileNotFoundError):  # held by another, or deleted by the one that held it
            pass
        self._file.close()
        return False

    def release(self) -> None:
        """Let others write the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)  # while it is locked, so that it is nobody else's
        self._file.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


class FileLocks:
    """The locks of one user's sessions.

    They are files in Holdfast's own folder, not in the project: there, a server could hold them for ever.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def acquire(self, folder_fd: int, name: str) -> FileLock | None:
        """Lock a name in an open folder; None if another session holds the lock for longer than a moment."""
        status = os.fstat(folder_fd)
        # The same for all spellings of a name that a file system may take for the same.
        plain = unicodedata.normalize("NFKC", name).casefold().encode(errors="surrogateescape")
        key = hashlib.sha256(b"%d %d %s" % (status.st_dev, status.st_ino, plain)).hexdigest()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            lock = FileLock(self._folder / key)
            if lock.try_acquire():
                return lock
            if time.monotonic() > until:
                return None
            time.sleep(_PAUSE_SECONDS)
