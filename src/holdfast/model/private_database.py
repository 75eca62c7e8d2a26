"""Keep other users from opening an SQLite database and its side files, even in a folder that they can open."""

import os
from contextlib import suppress
from pathlib import Path

_SIDE_FILES = ("-wal", "-shm", "-journal")


def make_private_database(path: Path) -> None:
    """Create the file with mode 0600. If it exists, remove the permissions of other users from it and its side files.

    SQLite gives the side files that it creates the mode of the database.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _close_to_others(path)
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            _close_to_others(path.with_name(path.name + suffix))


def _close_to_others(path: Path) -> None:
    # Not through a descriptor: closing one would drop the locks that this process has on the file.
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
