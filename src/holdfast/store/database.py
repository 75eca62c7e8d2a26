"""One connection to an SQLite file: how it is opened, and what its failures mean to a person."""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

# How long one process waits for another's commit.
BUSY_SECONDS = 10.0
_CACHE_KIB = 16 * 1024
_WAL_PAGES = 2000
_WAL_BYTES_KEPT = 64 * 1024 * 1024

C = TypeVar("C", bound=sqlite3.Connection)


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """The little of a database connection that the store uses."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Synchronous(StrEnum):
    """What a commit waits for. `normal` loses acknowledged commits with the power; it is here to be measured against."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class Look(sqlite3.Connection):
    """Sees the file as it lies there, and takes for granted that nobody writes to it."""

    stamp: tuple[int, int]


def connect(path: Path, synchronous: Synchronous = Synchronous.FULL) -> Database:
    """Open the file to write to it; made new, it can be read by its owner alone."""
    _make_private(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise HoldfastError(codes.STORE_READ_ONLY, _SENTENCES["STORE_READ_ONLY"].format(path=path))
    db = _open(f"{path.absolute().as_uri()}?mode=rw", sqlite3.Connection)
    try:
        prepare(db, synchronous)
    except BaseException:
        db.close()
        raise
    return db


def connect_to_read(path: Path) -> Database:
    """Open the file to read from it; it is never changed, nor made."""
    if not path.exists():
        raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{path}'.")
    db = _open(f"{path.absolute().as_uri()}?mode=ro", sqlite3.Connection)
    try:
        db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        if has_log(path):
            raise _needs_its_log(path) or error from None
        # Where the log's index cannot be made, on a disk that is full or read-only, the file itself can be read.
        db = connect_to_look(path)
    except BaseException:
        db.close()
        raise
    db.execute("PRAGMA query_only = ON")
    return db


def connect_to_look(path: Path) -> Look:
    """Open the file as it lies there, without its log and without leaving a trace beside it."""
    stamp = _stamp(path)
    db = _open(f"{path.absolute().as_uri()}?mode=ro&immutable=1", Look)
    db.stamp = stamp
    return db


def is_disturbed(db: Database, path: Path) -> bool:
    """Whether somebody wrote to a file that was only looked at: what was read of it may be of two moments."""
    return isinstance(db, Look) and db.stamp != _stamp(path)


def has_log(path: Path) -> bool:
    """Whether part of the database is in a log beside it still, as after a crash or while it is in use."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _needs_its_log(path: Path) -> HoldfastError | None:
    """Why a file with a log cannot be read, where the reason is its folder: beside the log SQLite must make an index."""
    if os.access(path.parent, os.W_OK):
        return None
    return HoldfastError(
        codes.STORE_READ_ONLY,
        f"'{path}' cannot be read: part of it is in '{path.name}-wal' still, as after a crash, and to read that, its "
        f"folder '{path.parent}' must be one that can be written to. Copy both files to such a folder.",
    )


def prepare(db: Database, synchronous: Synchronous) -> None:
    """Set what every writing connection needs."""
    db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute(f"PRAGMA synchronous = {synchronous}")
    # On macOS a plain fsync stops at the drive's own cache.
    db.execute("PRAGMA fullfsync = ON")
    db.execute("PRAGMA checkpoint_fullfsync = ON")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}").fetchall()
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}").fetchall()


@contextmanager
def told(path: Path | str, *, reads: bool = False) -> Iterator[None]:
    """Turn a failure of the file into one that a person can act on.

    To one who only `reads`, a question of ours that cannot be answered says that the file is not as we made it.
    """
    try:
        yield
    except sqlite3.Error as error:
        told = explain(error, path)
        if told is None and reads and not isinstance(error, _MISTAKES):
            told = HoldfastError(codes.STORE_CORRUPT, f"'{path}' is damaged: {error}. Nothing was changed.")
        if told is None:
            raise
        raise told from error
    except UnicodeDecodeError as error:
        # A name in the file's own schema, or SQLite's complaint about it, that is no text.
        raise HoldfastError(codes.STORE_CORRUPT, _SENTENCES["STORE_CORRUPT"].format(path=path)) from error
    except OSError as error:
        if (told := _explain_system(error, Path(path))) is None:
            raise
        raise told from error


def explain(error: sqlite3.Error, path: Path | str) -> HoldfastError | None:
    """What an error of SQLite means; None when it means a bug."""
    number: int = getattr(error, "sqlite_errorcode", 0)
    if not number and isinstance(error, sqlite3.OperationalError):
        # Python's own complaint, not SQLite's: a text in the file is no text.
        number = sqlite3.SQLITE_CORRUPT
    code = _CODES.get(number) or _CODES.get(number & 0xFF)
    return None if code is None else HoldfastError(code, _SENTENCES[code.name].format(path=path))


def passes(error: BaseException | None) -> bool:
    """Whether a failure may pass by itself: a disk that is full, a file that another process holds for long."""
    return isinstance(error, HoldfastError) and error.code in (codes.STORE_FULL, codes.STORE_BUSY)


def _explain_system(error: OSError, path: Path) -> HoldfastError | None:
    match error.errno:
        case errno.ENOENT:
            sentence = f"There is no folder '{path.parent}'. Make it, or name another place."
        case errno.EEXIST | errno.ENOTDIR if (file := _in_the_way(path)) is not None:
            sentence = f"'{path}' cannot be made: '{file}' is not a folder. Name another place."
        case errno.ENAMETOOLONG:
            sentence = f"'{path}' cannot be opened: its name is too long. Name another place."
        case number:
            code = _ERRNO.get(number or 0)
            return None if code is None else HoldfastError(code, _SENTENCES[code.name].format(path=path))
    return HoldfastError(codes.STORE_UNREADABLE, sentence)


def _in_the_way(path: Path) -> Path | None:
    """The file that stands where a folder on the way to this path should be."""
    return next((part for part in reversed(path.parents) if part.exists() and not part.is_dir()), None)


# Of whoever asks, not of the file.
_MISTAKES = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
_CODES: dict[int, Code] = {
    # Where the index of the log cannot grow, SQLite speaks of a failed disk; it is a full one.
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
_ERRNO: dict[int, Code] = {
    errno.ENOSPC: codes.STORE_FULL,
    errno.EDQUOT: codes.STORE_FULL,
    errno.EROFS: codes.STORE_READ_ONLY,
    errno.EACCES: codes.STORE_UNREADABLE,
    errno.EPERM: codes.STORE_UNREADABLE,
    errno.EISDIR: codes.STORE_UNREADABLE,
    errno.EEXIST: codes.FILE_EXISTS,
    errno.EIO: codes.STORE_FAILED,
}
_SENTENCES = {
    "STORE_FULL": "No space is left to write '{path}'. Nothing of this write was kept; all earlier ones were. "
    "Free some space on that disk, then try again.",
    "STORE_READ_ONLY": "'{path}' is on a disk or in a folder that cannot be written to. Nothing was changed.",
    "STORE_CORRUPT": "'{path}' is damaged, or no database at all. Nothing was changed.",
    "STORE_BUSY": "'{path}' is held by another process. Nothing of this write was kept.",
    "STORE_UNREADABLE": "'{path}' cannot be opened.",
    "FILE_EXISTS": "'{path}' cannot be made: something is in its place. Nothing was changed.",
    "STORE_FAILED": "The disk failed while '{path}' was read or written.",
}


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _open(uri: str, kind: type[C]) -> C:
    return sqlite3.connect(
        uri,
        factory=kind,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
        cached_statements=256,
    )


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # By its name: to open and close the file would drop the locks that this process has on it.
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
