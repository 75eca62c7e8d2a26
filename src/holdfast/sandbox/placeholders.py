"""Empty folders that hold the place of guarded names that do not exist yet.

The kernel can only make read-only what exists. So each missing name gets an empty folder while a confined server runs,
and the host removes it afterwards. Git does not list empty folders. A shared lock on the root says that a server runs
there: the last host to release it removes the folders, also those that a killed host left behind.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import GUARDED_NAMES
from holdfast.sandbox.held_path import HeldPath, PathHolder

_MODE = 0o1755  # the sticky bit, which has no effect here, marks a placeholder
_LOCK_SECONDS = 2.0
_CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def hold_placeholders(root: HeldPath, names: Iterable[str]) -> Iterator[None]:
    """Create a folder for each name that is missing in the root. Remove them if no other server runs in this root."""
    try:
        fd = root.open_to_read()
    except PermissionError:  # the host can execute, but not read; then it does not write there either
        yield
        return
    try:
        _lock(fd, root.path)
        for name in names:
            _create(fd, name, root.status)
        yield
    finally:
        if _is_last(fd):
            for name in GUARDED_NAMES:
                _remove(fd, name)
        os.close(fd)


def is_placeholder_path(path: Path) -> bool:
    """Whether an empty folder lies at this path only because a confined server runs."""
    if sys.platform != "linux":  # no `O_PATH`, and no bubblewrap
        return False
    try:
        with ExitStack() as opened:
            return is_placeholder(PathHolder(opened).open(str(path.absolute()), links="in folders"))
    except OSError:
        return False


def is_placeholder(held: HeldPath) -> bool:
    """Whether this is an empty folder that is there only because a confined server runs."""
    if not held.is_folder or stat.S_IMODE(held.status.st_mode) != _MODE:
        return False
    fd = held.open_to_read()
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def _lock(fd: int, path: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another host removes its placeholders just now
            if time.monotonic() > deadline:
                raise HoldfastError(
                    codes.SPAWN_FAILED,
                    f"{path!r} cannot be used by a confined server: another process has locked this folder. End that process.",
                ) from None
            time.sleep(0.01)
        except OSError:  # this file system has no locks
            return
        else:
            return


def _is_last(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here
        return True
    return True


def _create(root_fd: int, name: str, root_status: os.stat_result) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=root_fd)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno in _CANNOT_WRITE:  # nor can the server, which has no more rights than the host
            return
        raise
    fd = os.open(name, _OPEN_FOLDER, dir_fd=root_fd)
    try:
        if os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
            os.fchown(fd, root_status.st_uid, root_status.st_gid)
        os.fchmod(fd, _MODE)
    finally:
        os.close(fd)


def _remove(root_fd: int, name: str) -> None:
    """Remove a placeholder. `rmdir` fails if someone has put something into it."""
    with contextlib.suppress(OSError):
        fd = os.open(name, _OPEN_FOLDER, dir_fd=root_fd)
        try:
            is_ours = stat.S_IMODE(os.fstat(fd).st_mode) == _MODE
        finally:
            os.close(fd)
        if is_ours:
            os.rmdir(name, dir_fd=root_fd)
