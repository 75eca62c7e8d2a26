"""Text on disk: read whole within bounds, replaced whole or not at all."""

import os
import secrets
import stat
from dataclasses import dataclass

from holdfast.builtin.files.roots import Roots
from holdfast.builtin.files.walk import Spot, open_file, open_folder, reached
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

LARGEST = 4 * 1024 * 1024
_SNIFFED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is at a path: where it really is, its text, and what tells whether it was changed since."""

    real: str
    text: str | None
    mark: tuple[int, ...] = ()
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing in a folder."""

    name: str
    kind: str
    size: int | None = None


def read(roots: Roots, path: str, *, largest: int = LARGEST) -> Found:
    """The text of a file, or None where there is no file yet."""
    with reached(roots, path) as spot:
        try:
            descriptor = open_file(spot)
        except FileNotFoundError:
            return Found(real=spot.real, text=None)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _check_kind(path, status)
            if status.st_size > largest:
                raise HoldfastError(
                    codes.FILE_TOO_LARGE,
                    f"{path!r} has {status.st_size} bytes; files of up to {largest} bytes can be read.",
                )
            data = file.read(largest + 1)
    return Found(real=spot.real, text=as_text(path, data[:largest]), mark=_mark(status), mode=status.st_mode)


def make_way(roots: Roots, path: str) -> Found:
    """Make the folders that a new file needs."""
    with reached(roots, path, make=True) as spot:
        return Found(real=spot.real, text=None)


def write(roots: Roots, path: str, text: str, before: Found) -> None:
    """Put the text in place of what was found; what anybody else wrote meanwhile is not overwritten."""
    data = encoded(path, text)
    with reached(roots, path, make=True) as spot:
        if spot.real != before.real or _mark_at(spot) != before.mark:
            raise HoldfastError(
                codes.FILE_CHANGED, f"{path!r} was changed by somebody else meanwhile. Nothing was written."
            )
        if before.mark:
            _check_writable(spot)
        # Under a name of its own first: whoever reads sees the old text or the new one, whole.
        beside = f".holdfast-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(beside, flags, 0o666, dir_fd=spot.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if before.mode is not None:
                    os.fchmod(descriptor, stat.S_IMODE(before.mode) & 0o777)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
        except BaseException:
            os.unlink(beside, dir_fd=spot.folder)
            raise


def entries(roots: Roots, path: str) -> tuple[str, list[Entry]]:
    """What is in a folder, by name."""
    with reached(roots, path) as spot:
        descriptor = open_folder(spot)
        try:
            with os.scandir(descriptor) as found:
                return spot.real, sorted(map(_entry, found), key=lambda entry: entry.name)
        finally:
            os.close(descriptor)


def as_text(path: str, data: bytes) -> str:
    """The bytes as text; a binary file is named as such."""
    if b"\0" not in data[:_SNIFFED]:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    raise HoldfastError(codes.NOT_TEXT, f"{path!r} is a binary file ({len(data)} bytes), not text in UTF-8.")


def encoded(path: str, text: str) -> bytes:
    """The text as it would be on disk; refused where it is no text, or too much of it."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise HoldfastError(
            codes.NOT_TEXT, "The text has half a character (a lone surrogate) in it."
        ) from None
    if len(data) > LARGEST:
        raise HoldfastError(
            codes.FILE_TOO_LARGE, f"{path!r} would have {len(data)} bytes; up to {LARGEST} can be written."
        )
    return data


def _check_kind(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise HoldfastError(codes.NOT_A_FILE, f"{path!r} is a folder.")
    if not stat.S_ISREG(status.st_mode):
        raise HoldfastError(codes.NOT_A_FILE, f"{path!r} is no ordinary file.")


def _check_writable(spot: Spot) -> None:
    """To put another file in its place takes only the folder's permission; who wrote it may have forbidden that."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    os.close(os.open(spot.name, flags, dir_fd=spot.folder))


def _mark_at(spot: Spot) -> tuple[int, ...]:
    try:
        return _mark(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _entry(found: "os.DirEntry[str]") -> Entry:
    if found.is_symlink():
        return Entry(name=_sayable(found.name), kind="link")
    if found.is_dir(follow_symlinks=False):
        return Entry(name=_sayable(found.name), kind="folder")
    if found.is_file(follow_symlinks=False):
        try:
            return Entry(
                name=_sayable(found.name), kind="file", size=found.stat(follow_symlinks=False).st_size
            )
        except OSError:  # gone meanwhile
            return Entry(name=_sayable(found.name), kind="file")
    return Entry(name=_sayable(found.name), kind="other")


def _sayable(name: str) -> str:
    """A name that is no UTF-8 can be shown, though not asked for."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
