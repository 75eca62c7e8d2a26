"""Find guarded files in a root that have a second name (hard link). A mount on the one name does not protect the file under the other.

A confined server cannot make hard links, but other programs can, and the second name may be anywhere in the root. Programs are
not looked at: compilers link what they build, such as cargo in the folder `target`.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable


def find_second_name(root: str, guarded: Iterable[str]) -> str:
    """The path of a guarded file with a second name that is not guarded, too; empty if there is none. Blocks.

    `guarded` are names directly in the root.
    """
    files: dict[str, os.stat_result] = {}
    for name in guarded:
        status = _status(f"{root}/{name}")
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            files[f"{root}/{name}"] = status
    known = Counter((status.st_dev, status.st_ino) for status in files.values())
    for path, status in files.items():
        if status.st_nlink > known[status.st_dev, status.st_ino]:
            return path
    return ""


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
