"""Translate errors of SQLite and of the file system into errors that the user can act on."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError


@contextmanager
def translate_errors(path: Path | str, *, reading: bool = False) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as a `HoldfastError`.

    With `reading`, other SQL errors mean that the file is damaged, as our own queries are correct.
    """
    try:
        yield
    except sqlite3.Error as error:
        translated = explain_sqlite_error(error, path)
        if translated is None and reading and not isinstance(error, _CALLER_ERRORS):
            translated = HoldfastError(
                codes.STORE_CORRUPT, f"'{path}' is damaged: {error}. Nothing was changed."
            )
        if translated is None:
            raise
        raise translated from error
    except UnicodeDecodeError as error:
        # A name in the file's schema, or SQLite's message about it, is not valid UTF-8.
        raise store_error(codes.STORE_CORRUPT, path) from error
    except OSError as error:
        if (translated := _explain_os_error(error, Path(path))) is None:
            raise
        raise translated from error


def explain_sqlite_error(error: sqlite3.Error, path: Path | str) -> HoldfastError | None:
    """The error to raise for an error of SQLite, or None if it is a bug."""
    number: int = getattr(error, "sqlite_errorcode", 0)
    if not number and isinstance(error, sqlite3.OperationalError):
        # Raised by Python, not by SQLite: a text in the file is not valid UTF-8.
        number = sqlite3.SQLITE_CORRUPT
    code = _SQLITE_CODES.get(number) or _SQLITE_CODES.get(number & 0xFF)
    return None if code is None else store_error(code, path)


def store_error(code: Code, path: Path | str) -> HoldfastError:
    """The error with this code and its message for this file."""
    return HoldfastError(code, _MESSAGES[code.name].format(path=path))


def is_transient(error: BaseException | None) -> bool:
    """Whether a retry may succeed: the disk is full, or another process has locked the file."""
    return isinstance(error, HoldfastError) and error.code in (codes.STORE_FULL, codes.STORE_BUSY)


def _explain_os_error(error: OSError, path: Path) -> HoldfastError | None:
    match error.errno:
        case errno.ENOENT:
            message = f"There is no folder '{path.parent}'. Create it, or choose another path."
        case errno.EEXIST | errno.ENOTDIR if (file := _file_in_place_of_folder(path)) is not None:
            message = f"'{path}' cannot be created: '{file}' is not a folder. Choose another path."
        case errno.ENAMETOOLONG:
            message = f"'{path}' cannot be opened: its name is too long. Choose another path."
        case number:
            code = _ERRNO_CODES.get(number or 0)
            return None if code is None else store_error(code, path)
    return HoldfastError(codes.STORE_UNREADABLE, message)


def _file_in_place_of_folder(path: Path) -> Path | None:
    return next((part for part in reversed(path.parents) if part.exists() and not part.is_dir()), None)


# Errors of the caller, not of the file.
_CALLER_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
_SQLITE_CODES: dict[int, Code] = {
    # When the index of the WAL cannot grow, SQLite reports an I/O error, but the disk is full.
    sqlite3.SQLITE_IOERR_SHMSIZE: codes.STORE_FULL,
    sqlite3.SQLITE_FULL: codes.STORE_FULL,
    sqlite3.SQLITE_READONLY: codes.STORE_READ_ONLY,
    sqlite3.SQLITE_CORRUPT: codes.STORE_CORRUPT,
    sqlite3.SQLITE_NOTADB: codes.STORE_CORRUPT,
    sqlite3.SQLITE_BUSY: codes.STORE_BUSY,
    sqlite3.SQLITE_CANTOPEN: codes.STORE_UNREADABLE,
    sqlite3.SQLITE_PERM: codes.STORE_UNREADABLE,
    sqlite3.SQLITE_IOERR: codes.STORE_FAILED,
}
_ERRNO_CODES: dict[int, Code] = {
    errno.ENOSPC: codes.STORE_FULL,
    errno.EDQUOT: codes.STORE_FULL,
    errno.EROFS: codes.STORE_READ_ONLY,
    errno.EACCES: codes.STORE_UNREADABLE,
    errno.EPERM: codes.STORE_UNREADABLE,
    errno.EISDIR: codes.STORE_UNREADABLE,
    errno.EEXIST: codes.FILE_EXISTS,
    errno.EIO: codes.STORE_FAILED,
}
_MESSAGES = {
    "STORE_FULL": "No space is left to write '{path}'. This write was not stored; all earlier ones were. "
    "Free some space on that disk, then try again.",
    "STORE_READ_ONLY": "'{path}' is on a disk or in a folder that cannot be written to. Nothing was changed.",
    "STORE_CORRUPT": "'{path}' is damaged or not a database. Nothing was changed.",
    "STORE_BUSY": "'{path}' is locked by another process. This write was not stored. Try again.",
    "STORE_UNREADABLE": "'{path}' cannot be opened.",
    "FILE_EXISTS": "'{path}' cannot be created: it already exists. Nothing was changed.",
    "STORE_FAILED": "The disk failed while reading or writing '{path}'.",
}
