"""Create folders and SQLite databases that only their owner can open."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_SIDE_FILES = ("-wal", "-shm", "-journal")


def make_private_folder(path: Path) -> None:
    """Create a folder that lies directly in the data folder. If the data folder is missing, create it, too. Both get the mode 0700.

    Existing folders are not changed. One `mkdir(parents=True)` would create the data folder with the default mode.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def make_private_database(path: Path) -> None:
    """Create the file of a database with mode 0600. If it exists, remove the permissions of other users from it and its side files.

    SQLite creates the side files (`-wal`, `-shm`, `-journal`) with the mode of the database. So other users cannot open the database,
    even if they can open its folder.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_side_files(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _make_private(path)
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            _make_private(path.with_name(path.name + suffix), follow_link=False)


def check_side_files(path: Path) -> None:
    """Raise an error if a side file of the database is a link or not a regular file: SQLite would open a link's target."""
    for suffix in _SIDE_FILES:
        side_file = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(side_file.lstat().st_mode):
                raise HoldfastError(
                    codes.STORE_UNREADABLE,
                    f"'{side_file}' is a link or not a regular file, so '{path}' is not opened. Nothing was changed.",
                    hint="If you know that it is not in use, remove it.",
                )


def _make_private(path: Path, *, follow_link: bool = True) -> None:
    """Remove the permissions of other users from a file of this user."""
    if not hasattr(os, "O_PATH"):  # not Linux
        if _is_open_to_others(path.stat() if follow_link else path.lstat()):
            path.chmod(0o600)
        return
    # When a process closes any ordinary descriptor of a file, it loses its POSIX locks on this file. With O_PATH it keeps them.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow_link else os.O_NOFOLLOW))
    try:
        if _is_open_to_others(os.fstat(handle)):
            Path(f"/proc/self/fd/{handle}").chmod(0o600)
    finally:
        os.close(handle)


def _is_open_to_others(status: os.stat_result) -> bool:
    is_own = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
    return is_own and bool(status.st_mode & 0o077)
