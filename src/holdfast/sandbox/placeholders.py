"""Create placeholders: folders for guarded names that do not exist yet.

Only an existing path can be mounted read-only. So each missing name gets a folder while a confined server runs. The folder
contains a `.gitignore` that ignores everything, so that git neither lists the folder nor removes it (`git clean -d`,
`git stash -u`). When the last server in a root has ended, its host removes all placeholders in the root, including those
that a killed host left behind.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.model.confined_folders import RootLocks, running_roots
from holdfast.model.guarded_names import GUARDED_NAMES
from holdfast.sandbox.opened_path import OpenedPath, PathOpener

log = logging.getLogger(__name__)

_MODE = 0o1755  # the sticky bit, which has no effect here, marks a placeholder
_IGNORE_FILE = ".gitignore"
_IGNORE_TEXT = b"# Holdfast created this folder, and removes it when the last confined server has ended.\n*\n"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

PlaceholderVersion = tuple[int, int, int]
"""Device, inode and change time of a placeholder's `.gitignore`. They identify the placeholder."""


@contextmanager
def keep_placeholders(
    root: OpenedPath, names: Iterable[str], locks: RootLocks
) -> Iterator[dict[str, PlaceholderVersion]]:
    """Create a placeholder for each name that is missing in the root. Yield all placeholders that exist now.

    Afterwards, remove them if no other server runs in this root. If the host may not read the root or write to it, no
    placeholder is created.
    """
    try:
        fd = root.open_to_read()
    except PermissionError:
        yield {}
        return
    placeholders: dict[str, PlaceholderVersion] = {}
    try:
        with contextlib.suppress(OSError):
            for name in names:
                _create(fd, name, root.status)
        placeholders |= {
            name: version for name in names if (version := placeholder_version(fd, name)) is not None
        }
        # Hosts of other users cannot see `locks`. They can see a lock on a placeholder. One lock is enough: before they remove
        # the placeholders, they try to lock all of them. A confined server cannot take such a lock, unless its root is above this one.
        with ExitStack() as locked:
            for name in [*placeholders][-1:]:
                locked.enter_context(_locked(fd, name, fcntl.LOCK_SH))
            yield placeholders
    finally:
        try:
            for name, before in placeholders.items():
                if placeholder_version(fd, name) != before:
                    _set_aside(root.path, fd, name)
            with ExitStack() as locked:
                names = [name for name in GUARDED_NAMES if placeholder_version(fd, name) is not None]
                if locks.is_last() and (
                    all(locked.enter_context(_locked(fd, name, fcntl.LOCK_EX)) for name in names)
                    or _is_server_above(root)
                ):
                    _remove_all(fd)
        finally:
            os.close(fd)


def _is_server_above(root: OpenedPath) -> bool:
    """Whether a confined server runs in a folder above. It can lock the placeholders, so their locks then mean nothing."""
    return not running_roots().isdisjoint(
        step.identity for step in root.self_and_parents() if step is not root
    )


def is_placeholder_path(path: Path) -> bool:
    """Whether there is an unused placeholder at this path."""
    if sys.platform != "linux":  # no `O_PATH`, and no bubblewrap
        return False
    try:
        with ExitStack() as stack:
            return is_placeholder(PathOpener(stack).open(str(path.absolute()), links="keep_last"))
    except OSError:
        return False


def is_placeholder(opened: OpenedPath) -> bool:
    """Whether this is an unused placeholder: it contains nothing but its `.gitignore`."""
    if not opened.is_folder or stat.S_IMODE(opened.status.st_mode) != _MODE:
        return False
    fd = opened.open_to_read()
    try:
        return _is_unused(fd)
    finally:
        os.close(fd)


def placeholder_version(root_fd: int, name: str) -> PlaceholderVersion | None:
    """The version of the placeholder with this name; None if there is none. If it was replaced, the version differs."""
    try:
        status = os.stat(f"{name}/{_IGNORE_FILE}", dir_fd=root_fd, follow_symlinks=False)
        folder = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return None
    is_marked = stat.S_ISDIR(folder.st_mode) and stat.S_IMODE(folder.st_mode) == _MODE
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if is_marked else None


def _create(root_fd: int, name: str, root_status: os.stat_result) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=root_fd)
    except FileExistsError:
        return
    with _opened(name, _OPEN_FOLDER, root_fd) as fd:
        with _opened(_IGNORE_FILE, _NEW_FILE, fd) as file:
            os.write(file, _IGNORE_TEXT)
            for each in (file, fd):
                if os.geteuid() == 0 and os.fstat(each).st_uid == 0:
                    os.fchown(each, root_status.st_uid, root_status.st_gid)
        os.fchmod(fd, _MODE)


def _set_aside(root: str, root_fd: int, name: str) -> None:
    """Rename what took a placeholder's place, because the server may have written it.

    Only a program outside of the sandbox can remove a placeholder. The server is then killed, but may have created the
    name first.
    """
    if not _exists(root_fd, name) or _is_unused_placeholder(root_fd, name):
        return
    new_name = f"{name}.from-sandbox-{secrets.token_hex(4)}"  # random, so that the server cannot have created it first
    try:
        with _writable(root_fd):
            outcome = _rename_or_disable(root_fd, name, new_name)
    except OSError as error:
        outcome = f"could not be renamed: {error.strerror}"
    log.warning(
        "a protected file or folder was replaced while a confined server ran, perhaps by the server",
        extra={"root": root, "guarded_name": name, "outcome": outcome},
    )


def _rename_or_disable(root_fd: int, name: str, new_name: str) -> str:
    """Rename a file or folder. If that fails, as on a full disk, delete the file, or take all rights to the folder away."""
    try:
        os.rename(name, new_name, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    except OSError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=root_fd)
            return "it was deleted"
        with _opened(name, _OPEN_FOLDER, root_fd) as fd:
            os.fchmod(fd, 0)
        return "its mode was set to 0"
    return f"it was renamed to {new_name}"


def _remove_all(root_fd: int) -> None:
    """Remove all placeholders, even if the server took away the owner's permission to write to the root."""
    left = [name for name in GUARDED_NAMES if not _remove(root_fd, name)]
    if not left:
        return
    with contextlib.suppress(OSError), _writable(root_fd):
        for name in left:
            _remove(root_fd, name)


@contextmanager
def _writable(root_fd: int) -> Iterator[None]:
    """Give the owner of the root all rights to it during the block. The server may have taken them away."""
    mode = stat.S_IMODE(os.fstat(root_fd).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    os.fchmod(root_fd, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        os.fchmod(root_fd, mode)


def _remove(root_fd: int, name: str) -> bool:
    """Remove a placeholder. If it contains other files, remove only its `.gitignore`. False if permission was denied."""
    try:
        with _opened(name, _OPEN_FOLDER, root_fd) as fd:
            if not _is_marked(fd):
                return True
            with contextlib.suppress(FileNotFoundError):
                if _read(fd) == _IGNORE_TEXT:
                    os.unlink(_IGNORE_FILE, dir_fd=fd)
        os.rmdir(name, dir_fd=root_fd)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def _is_marked(fd: int) -> bool:
    return stat.S_IMODE(os.fstat(fd).st_mode) == _MODE


def _is_unused(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return all(entry.name == _IGNORE_FILE for entry in entries)


def _is_unused_placeholder(root_fd: int, name: str) -> bool:
    try:
        with _opened(name, _OPEN_FOLDER, root_fd) as fd:
            return _is_marked(fd) and _is_unused(fd)
    except OSError:
        return False


def _read(fd: int) -> bytes:
    with _opened(_IGNORE_FILE, _OPEN_FILE, fd) as file:
        return os.read(file, len(_IGNORE_TEXT) + 1)


def _exists(root_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


@contextmanager
def _opened(name: str, flags: int, folder_fd: int) -> Iterator[int]:
    fd = os.open(name, flags, 0o644, dir_fd=folder_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _locked(root_fd: int, name: str, kind: int) -> Iterator[bool]:
    """Lock a placeholder during the block. Yield False if another process holds a lock on it."""
    with ExitStack() as stack:
        is_locked = True
        try:
            fd = stack.enter_context(_opened(f"{name}/{_IGNORE_FILE}", _OPEN_FILE, root_fd))
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            is_locked = False
        except OSError:  # it was removed, or the file system has no locks
            pass
        yield is_locked
