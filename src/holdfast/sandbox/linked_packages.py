"""Find the folders of packages in a root that share files with a store of the user, by hard links.

uv, pnpm, bun, conda and pixi fill a project's folder of packages with hard links to their store. A change of such a file also
changes the store, and so the packages of every other project, which the user's programs run.
"""

import logging
import os
import stat
import time
from collections.abc import Collection
from functools import lru_cache

from holdfast.model.guarded_names import PACKAGE_FOLDERS

log = logging.getLogger(__name__)

_MAX_FOLDERS = 200  # how many folders are searched in one folder of packages
# How many names are listed: with pnpm, thousands of packages come before the first file.
_MAX_ENTRIES = 20_000
# How many files of each folder are checked: a package manager links all files of a package, or none.
_MAX_FILES_EACH = 2
_KEEP_SECONDS = 60.0


def find_linked_packages(root: str, writable: Collection[str] = ()) -> frozenset[str]:
    """The names directly in a root that a confined server must not change. Blocks. `writable` are those that it may change.

    The result of a search is kept for at most a minute.
    """
    minute = int(time.monotonic() // _KEEP_SECONDS)
    found = frozenset(
        name
        for name in PACKAGE_FOLDERS
        if name not in writable
        and (version := _folder_version(f"{root}/{name}")) is not None
        and _has_hard_link(f"{root}/{name}", version, minute)
    )
    if found:
        log.info(
            "a folder of packages is read-only for confined programs, because it shares files with other projects",
            extra={"root": root, "names": sorted(found)},
        )
    return found


def _folder_version(path: str) -> tuple[int, int, int] | None:
    """What identifies a folder and its list of names; None if there is no folder at this path."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns) if stat.S_ISDIR(status.st_mode) else None


@lru_cache(maxsize=256)
def _has_hard_link(folder: str, _version: tuple[int, int, int], _minute: int) -> bool:
    """Whether one of the first files has a second hard link. `_version` and `_minute` are only parts of the cache's key."""
    pending, folders, entries = [folder], 0, 0
    while pending and folders < _MAX_FOLDERS and entries < _MAX_ENTRIES:
        folders += 1
        files = 0
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif files < _MAX_FILES_EACH and entry.is_file(follow_symlinks=False):
                        files += 1
                        if entry.stat(follow_symlinks=False).st_nlink > 1:
                            return True
                    if entries >= _MAX_ENTRIES:
                        break
        except OSError:  # it is not readable, or has just been removed
            continue
    return False
