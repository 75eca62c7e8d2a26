"""Read files that other people may have written: only regular files, up to a size limit, and without blocking."""

import errno
import os
import shlex
import stat
from functools import cache
from pathlib import Path

_BLOCK_BYTES = 64 * 1024
_PSEUDO_FILE_SYSTEMS = ("/proc", "/sys")


class UnusableFileError(OSError):
    """The file exists, but is not read: for example, it is too large or not a regular file."""


class SharedFileError(UnusableFileError):
    """The file is not read, because another user can change it. `strerror` says what to do."""


def read_own_file(path: str | Path, *, limit: int) -> bytes:
    """The content of a configuration file of the user or the operator. Raise `SharedFileError` if another user can change it."""
    descriptor = open_untrusted_file(path)
    try:
        status = os.fstat(descriptor)
        if belongs_to_other_user(status):
            reason = "it belongs to another user. Check its content, then replace it with a copy of your own"
            raise SharedFileError(errno.EPERM, reason, str(path))
        if is_writable_by_others(status):
            command = shlex.join(["chmod", "go-w", str(path)])
            reason = f"other users can change it. Check its content, then run: {command}"
            raise SharedFileError(errno.EPERM, reason, str(path))
        return read_descriptor(descriptor, limit=limit, name=str(path))
    finally:
        os.close(descriptor)


def belongs_to_other_user(status: os.stat_result) -> bool:
    """Whether a user other than this one and root owns the file or folder. False in a process of root, which may use every file."""
    return os.geteuid() != 0 and status.st_uid not in (0, os.geteuid())


def is_writable_by_others(status: os.stat_result) -> bool:
    """Whether all users may write, or a group other than root's and this user's primary group, which often has no other member."""
    is_other_group = status.st_gid not in (0, os.getegid())
    return bool(status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and is_other_group))


def read_untrusted_file(
    path: str | Path, *, limit: int, dir_fd: int | None = None, follow_link: bool = True
) -> bytes:
    """The content of a file. Raise `OSError` if it cannot be read, or has more than `limit` bytes.

    On Linux, a FIFO or a device is not opened at all: opening it could block or have side effects.
    """
    descriptor = open_untrusted_file(path, dir_fd=dir_fd, follow_link=follow_link)
    try:
        return read_descriptor(descriptor, limit=limit, name=str(path))
    finally:
        os.close(descriptor)


def read_project_file(folder: str | Path, path: str, *, limit: int) -> bytes:
    """The content of a file below a project's folder. Raise `UnusableFileError` if it, or a folder on the way to it, is a link.

    A link could lead to a private file of the user, whose content would be shown.
    """
    *folders, name = path.split("/")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for inner in folders:
            outer, descriptor = descriptor, _open_inner_folder(descriptor, inner)
            os.close(outer)
        return read_untrusted_file(name, limit=limit, dir_fd=descriptor, follow_link=False)
    finally:
        os.close(descriptor)


def _open_inner_folder(descriptor: int, name: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=descriptor)
    except OSError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=descriptor).st_mode):
            raise UnusableFileError(errno.ELOOP, "in a folder that is a link", name) from None
        raise


def open_untrusted_file(path: str | Path, *, dir_fd: int | None = None, follow_link: bool = True) -> int:
    """Open a regular file for reading. The caller closes the descriptor."""
    flags = os.O_CLOEXEC | (0 if follow_link else os.O_NOFOLLOW)
    if not hasattr(os, "O_PATH"):  # not Linux
        descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=dir_fd)
        try:
            _check_regular(descriptor, path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    handle = os.open(path, flags | os.O_PATH, dir_fd=dir_fd)  # does not open a device yet
    try:
        _check_regular(handle, path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except BlockingIOError:  # another process has a lease on it
        raise UnusableFileError(errno.EAGAIN, "in use by another process", str(path)) from None
    finally:
        os.close(handle)


def read_descriptor(descriptor: int, *, limit: int, name: str) -> bytes:
    """The rest of an open regular file. Raise if it has more than `limit` bytes."""
    blocks: list[bytes] = []
    left = limit + 1
    while left > 0 and (block := os.read(descriptor, min(left, _BLOCK_BYTES))):
        blocks.append(block)
        left -= len(block)
    if left <= 0:
        raise UnusableFileError(errno.EFBIG, f"more than {limit} bytes", name)
    return b"".join(blocks)


def _check_regular(descriptor: int, path: str | Path) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise UnusableFileError(errno.EINVAL, kind, str(path))
    # Reading a file of /proc or /sys can reveal secrets of the host, or block.
    if mount := _pseudo_devices().get(status.st_dev):
        raise UnusableFileError(errno.EINVAL, f"a file of {mount}", str(path))


@cache
def _pseudo_devices() -> dict[int, str]:
    """The device numbers of /proc and /sys, each with its path."""
    return {Path(mount).stat().st_dev: mount for mount in _PSEUDO_FILE_SYSTEMS if Path(mount).exists()}
