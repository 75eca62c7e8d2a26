"""Create empty folders for guarded names that do not exist yet.

Only an existing path can be mounted read-only. So each missing name gets an empty folder while a confined server runs,
and the host removes it afterwards. Git does not list empty folders. The last host whose server ends in this root removes
the folders, also those that a killed host left behind.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.model.confined_locks import RootLocks
from holdfast.model.process import GUARDED_NAMES
from holdfast.sandbox.held_path import HeldPath, PathHolder

_MODE = 0o1755  # the sticky bit, which has no effect here, marks a placeholder
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def hold_placeholders(root: HeldPath, names: Iterable[str], locks: RootLocks) -> Iterator[None]:
    """Create a folder for each name that is missing in the root. Remove them if no other server runs in this root.

    If the host may not read the root or write to it, names stay missing.
    """
    try:
        fd = root.open_to_read()
    except PermissionError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            for name in names:
                _create(fd, name, root.status)
        yield
    finally:
        try:
            if locks.is_last():
                _remove_all(fd)
        finally:
            os.close(fd)


def is_placeholder_path(path: Path) -> bool:
    """Whether this path is a placeholder."""
    if sys.platform != "linux":  # no `O_PATH`, and no bubblewrap
        return False
    try:
        with ExitStack() as opened:
            return is_placeholder(PathHolder(opened).open(str(path.absolute()), links="in folders"))
    except OSError:
        return False


def is_placeholder(held: HeldPath) -> bool:
    """Whether this is an empty folder that was created because a confined server runs."""
    if not held.is_folder or stat.S_IMODE(held.status.st_mode) != _MODE:
        return False
    fd = held.open_to_read()
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def _create(root_fd: int, name: str, root_status: os.stat_result) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=root_fd)
    except FileExistsError:
        return
    fd = os.open(name, _OPEN_FOLDER, dir_fd=root_fd)
    try:
        if os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
            os.fchown(fd, root_status.st_uid, root_status.st_gid)
        os.fchmod(fd, _MODE)
    finally:
        os.close(fd)


def _remove_all(root_fd: int) -> None:
    """Remove all placeholders, even if the server took the owner's permission to write to the root."""
    mode = stat.S_IMODE(os.fstat(root_fd).st_mode)
    left = [name for name in GUARDED_NAMES if not _remove(root_fd, name)]
    if not left:
        return
    with contextlib.suppress(OSError):
        os.fchmod(root_fd, mode | stat.S_IRWXU)
        try:
            for name in left:
                _remove(root_fd, name)
        finally:
            os.fchmod(root_fd, mode)


def _remove(root_fd: int, name: str) -> bool:
    """Remove a placeholder. `rmdir` fails if it is not empty any more. False if permission was denied."""
    try:
        fd = os.open(name, _OPEN_FOLDER, dir_fd=root_fd)
        try:
            is_ours = stat.S_IMODE(os.fstat(fd).st_mode) == _MODE
        finally:
            os.close(fd)
        if is_ours:
            os.rmdir(name, dir_fd=root_fd)
    except PermissionError:
        return False
    except OSError:
        pass
    return True
