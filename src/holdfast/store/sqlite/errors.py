"""Translates errors of SQLite into errors that the user can act on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.store.errors import store_error, translate_file_errors


@contextmanager
def translate_errors(path: Path | str, *, reading: bool = False) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as a `HoldfastError`.

    With `reading`, any other error of SQLite, except `_CALLER_ERRORS`, means that the file is damaged.
    """
    try:
        with translate_file_errors(path):
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


def explain_sqlite_error(error: sqlite3.Error, path: Path | str) -> HoldfastError | None:
    """The error to raise for an error of SQLite; None if it is of another kind, such as a bug in Holdfast."""
    number: int = getattr(error, "sqlite_errorcode", 0)
    if not number and isinstance(error, sqlite3.OperationalError):
        # Raised by Python, not by SQLite: a string in the file is not valid UTF-8.
        number = sqlite3.SQLITE_CORRUPT
    code = _SQLITE_CODES.get(number) or _SQLITE_CODES.get(number & 0xFF)
    return None if code is None else store_error(code, path)


# Errors of the caller, not of the file.
_CALLER_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
_SQLITE_CODES: dict[int, Code] = {
    # When the index of the WAL cannot grow, SQLite reports an I/O error, but the disk is full.
    sqlite3.SQLITE_IOERR_SHMSIZE: codes.STORE_FULL,
    sqlite3.SQLITE_INTERRUPT: codes.STORE_CLOSED,
    sqlite3.SQLITE_FULL: codes.STORE_FULL,
    sqlite3.SQLITE_READONLY: codes.STORE_READ_ONLY,
    sqlite3.SQLITE_CORRUPT: codes.STORE_CORRUPT,
    sqlite3.SQLITE_NOTADB: codes.STORE_CORRUPT,
    sqlite3.SQLITE_BUSY: codes.STORE_BUSY,
    sqlite3.SQLITE_CANTOPEN: codes.STORE_UNREADABLE,
    sqlite3.SQLITE_PERM: codes.STORE_UNREADABLE,
    sqlite3.SQLITE_IOERR: codes.STORE_FAILED,
}
