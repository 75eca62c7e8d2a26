"""The folder of one browser, with its profile, its downloads and the files it may upload."""

import fcntl
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.model.browsers_folder import browsers_folder
from holdfast.model.folder_tree import remove_tree
from holdfast.sandbox.user_and_group import NOBODY

_LOCK = ".lock"


class BrowserFolder:
    """A new folder for one browser. A lock file tells other processes that the folder is in use. `remove` deletes it."""

    def __init__(self, base: Path | None = None) -> None:
        """Remove leftovers in `base`, and create the folder in it. Raise OSError if that fails, or if others can change `base`."""
        base = base or browsers_folder()
        _prepare_base(base)
        remove_leftovers(base)
        # The lock comes first: without a lock, the folder would never be removed if this process were killed now.
        self.path, self._lock = _lock_new_name(base)
        self.path.mkdir(mode=0o700)
        for name in ("profile", "downloads", "uploads"):
            (self.path / name).mkdir()

    def give_to_nobody(self) -> None:
        """Make the user `nobody` the owner of the folder. A confined browser that root starts runs as the owner of its folder."""
        for path in (self.path, *self.path.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def remove(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def remove_leftovers(base: Path | None = None) -> int:
    """Remove the folders of servers that have ended without removing them. Return how many were removed."""
    removed = 0
    base = base or browsers_folder()
    for lock in base.glob(f"b*{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(lock.with_suffix(""))
            removed += 1
        except OSError:  # the server that uses the folder is running
            continue
        finally:
            os.close(descriptor)
    return removed


def _lock_new_name(base: Path) -> tuple[Path, int]:
    while True:
        path = base / f"b{secrets.token_hex(8)}"
        lock = os.open(path.with_suffix(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)  # another process removed the file as a leftover before it was locked


def _remove(folder: Path) -> None:
    with suppress(OSError):
        remove_tree(folder)
    if not folder.exists():
        folder.with_suffix(_LOCK).unlink(missing_ok=True)


def _prepare_base(base: Path) -> None:
    # A browser that is confined by root runs as the user `nobody`, who must be able to enter the folder, but not to list it.
    base.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{base} must be a folder that only you can change. Remove it, and try again.")
