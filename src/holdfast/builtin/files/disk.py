"""Reads text files of limited size, replaces them atomically, and lists folders."""

import os
import secrets
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass

from holdfast.builtin.files.attributes import copy_attributes, give_to_folder_owner
from holdfast.builtin.files.file_locks import FileLock, FileLocks
from holdfast.builtin.files.open_path import PathHandle, open_file, open_folder, open_path
from holdfast.builtin.files.roots import Roots
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.visible_text import replace_invalid_utf8

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_LISTED = 1000
_MAX_ENTRIES = 50_000
_PAUSE_ENTRIES = 256  # how many entries are read between two pauses
_BINARY_CHECK_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSnapshot:
    """A file as it was read."""

    real_path: str
    """The path of the file after all symbolic links in it were followed."""
    text: str | None
    """None if there was no file."""
    version: tuple[int, ...] = ()
    """Changes with every change to the file on disk; empty if there was no file."""
    is_from_editor: bool = False
    """True if the text came from the editor, and not from disk."""
    note: str = ""
    """What the model must know about the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """One entry of a folder listing."""

    name: str
    kind: str
    """`file`, `folder`, `link` (a symbolic link) or `other`."""
    size: int | None = None
    """In bytes; None for everything but files, and for a file that was deleted since it was listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    """The first entries of a folder by name, and how many entries it has."""

    real_path: str
    entries: tuple[FolderEntry, ...]
    total: int
    is_complete: bool
    """False if the folder has more entries than are read. Then `total` and `entries` are about those that were read."""


def read_file(
    roots: Roots, path: str, *, for_writing: bool = False, max_bytes: int = MAX_FILE_BYTES
) -> FileSnapshot:
    """Read a text file. If there is no such file, the snapshot's text is None."""
    with open_path(roots, path, for_writing=for_writing) as handle:
        try:
            descriptor = open_file(handle)
        except FileNotFoundError:
            return FileSnapshot(real_path=handle.real_path, text=None)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = b"" if status.st_size > max_bytes else file.read(max_bytes + 1)
            if (size := max(status.st_size, len(data))) > max_bytes:
                raise HoldfastError(
                    codes.FILE_TOO_LARGE, f"{path!r} has {size} bytes; the maximum is {max_bytes}."
                )
    return FileSnapshot(real_path=handle.real_path, text=decode_text(path, data), version=_version(status))


def make_parents(roots: Roots, path: str) -> FileSnapshot:
    """Create the missing parent folders of a new file. Return a snapshot that says there is no file."""
    with open_path(roots, path, for_writing=True, make_parents=True) as handle:
        return FileSnapshot(real_path=handle.real_path, text=None)


def lock_file(roots: Roots, locks: FileLocks, path: str, before: FileSnapshot) -> FileLock | None:
    """Lock a file that the editor will write. Returns None if another session has locked it.

    Raises FILE_CHANGED if the file has changed since `before` was read.
    """
    with open_path(roots, path, for_writing=True) as handle:
        lock = locks.acquire(handle.folder_fd, handle.name)
        if lock is not None:
            try:
                _check_unchanged(handle, path, before)
            except BaseException:
                lock.release()
                raise
        return lock


def write_file(roots: Roots, locks: FileLocks, path: str, text: str, before: FileSnapshot) -> bool:
    """Replace or create a file atomically. Returns False if another session has locked it.

    Raises FILE_CHANGED if the file has changed since `before` was read.
    """
    data = encode_text(path, text)
    with open_path(roots, path, for_writing=True, make_parents=True) as handle:
        lock = locks.acquire(handle.folder_fd, handle.name)
        if lock is None:
            return False
        with lock:
            _check_unchanged(handle, path, before)
            # Write under a temporary name first, so that readers see either the old text or the new one.
            temporary = f".holdfast-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            mode = 0o600 if before.version else 0o666  # the mode of an existing file is copied below
            descriptor = os.open(temporary, flags, mode, dir_fd=handle.folder_fd)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    if before.version:
                        _copy_attributes(handle, path, before, descriptor)
                    else:
                        give_to_folder_owner(descriptor, os.fstat(handle.folder_fd))
                    file.write(data)
                    file.flush()
                    # The file system's own clock is coarse: two quick changes could get the same time.
                    now = time.time_ns()
                    os.utime(descriptor, ns=(now, now))
                    os.fsync(descriptor)
                _check_unchanged(handle, path, before)
                _move_into_place(temporary, handle, is_new=not before.version)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=handle.folder_fd)
                raise
    return True


def _check_unchanged(handle: PathHandle, path: str, before: FileSnapshot) -> None:
    if handle.real_path != before.real_path or _version_at(handle) != before.version:
        raise changed_error(path)


def changed_error(path: str) -> HoldfastError:
    """Return the error for a file that another program has changed."""
    return HoldfastError(codes.FILE_CHANGED, f"{path!r} has changed since it was read. Nothing was written.")


def _copy_attributes(handle: PathHandle, path: str, before: FileSnapshot, new_fd: int) -> None:
    """Copy the attributes of the old file. Raises if the user may not write to that file: the right to replace it is not enough."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    old_fd = os.open(handle.name, flags, dir_fd=handle.folder_fd)
    try:
        if _version(os.fstat(old_fd)) != before.version:
            raise changed_error(path)
        copy_attributes(old_fd, new_fd)
    finally:
        os.close(old_fd)


def _move_into_place(temporary: str, handle: PathHandle, *, is_new: bool) -> None:
    folder_fd = handle.folder_fd
    if is_new:
        try:  # unlike a rename, a hard link fails if another program has created the file by now
            os.link(temporary, handle.name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
        except FileExistsError:
            raise changed_error(handle.real_path) from None
        except OSError:
            pass  # a file system without hard links
        else:
            os.unlink(temporary, dir_fd=folder_fd)
            return
    os.replace(temporary, handle.name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)


def list_folder(roots: Roots, path: str) -> Generator[None, None, FolderListing]:
    """List a folder. The generator yields wherever the work can pause, so that its thread can work for other sessions."""
    with open_path(roots, path) as handle:
        descriptor = open_folder(handle)
        try:
            first: list[tuple[str, str]] = []
            total, is_complete = 0, True
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if total == _MAX_ENTRIES:
                        is_complete = False
                        break
                    first.append((entry.name, _kind(entry)))
                    total += 1
                    if total % _PAUSE_ENTRIES == 0:
                        # Sort a few at a time: no other thread runs while a list is being sorted.
                        first.sort()
                        del first[MAX_LISTED:]
                        yield
            first.sort()
            return FolderListing(
                real_path=handle.real_path,
                entries=tuple(_folder_entry(descriptor, *entry) for entry in first[:MAX_LISTED]),
                total=total,
                is_complete=is_complete,
            )
        finally:
            os.close(descriptor)


def decode_text(path: str, data: bytes) -> str:
    """Decode the content of a file. Raises NOT_TEXT if it is not UTF-8, or has a NUL near its beginning."""
    if b"\0" not in data[:_BINARY_CHECK_BYTES]:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    raise HoldfastError(codes.NOT_TEXT, f"{path!r} is a binary file ({len(data)} bytes), not UTF-8 text.")


def encode_text(path: str, text: str) -> bytes:
    """Encode a text as UTF-8. Raises NOT_TEXT if that is not possible, FILE_TOO_LARGE if the file would be too large."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise HoldfastError(
            codes.NOT_TEXT, "The text contains a lone surrogate, which UTF-8 cannot encode."
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise too_large_error(path, len(data))
    return data


def too_large_error(path: str, size: int) -> HoldfastError:
    """Return the error for a text that is too large to be written."""
    return HoldfastError(
        codes.FILE_TOO_LARGE, f"{path!r} would have {size} bytes; the maximum is {MAX_FILE_BYTES}."
    )


def _version_at(handle: PathHandle) -> tuple[int, ...]:
    try:
        return _version(os.stat(handle.name, dir_fd=handle.folder_fd, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return values of which at least one changes with every change to a file."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _folder_entry(folder_fd: int, name: str, kind: str) -> FolderEntry:
    size = None
    if kind == "file":
        with suppress(OSError):  # deleted since it was listed
            size = os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_size
    return FolderEntry(name=replace_invalid_utf8(name), kind=kind, size=size)
