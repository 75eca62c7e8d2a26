"""Opens connections to an SQLite file: for writing, for reading, and immutable."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.private_files import check_side_files, make_private_database
from holdfast.store.errors import store_error

BUSY_SECONDS = 10.0
"""How long a process waits for the commit of another process."""
# When the write-ahead log (WAL) has this many pages, SQLite makes a checkpoint and starts the log from its beginning.
_WAL_PAGES = 2000
_CACHE_KIB = 8 * 1024  # the writer's page cache: as large as the WAL before a checkpoint
_WAL_BYTES = _WAL_PAGES * (4096 + 24) + 32  # each page and the header of its frame, and the file's header
# A WAL that grew larger, because a long read prevented a checkpoint, is truncated to this size.
_WAL_BYTES_KEPT = 64 * 1024 * 1024
_MIN_FREE_BYTES = 1024 * 1024 * 1024  # on a disk with less, the WAL is not extended in advance
_ZEROS = bytes(256 * 1024)

C = TypeVar("C", bound=sqlite3.Connection)


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """The part of a database connection that the store uses."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""
        ...

    def close(self) -> None: ...


class Synchronous(StrEnum):
    """SQLite's `synchronous` setting. With `NORMAL`, which only tests use, a power cut may lose commits."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class ImmutableConnection(sqlite3.Connection):
    """A connection that ignores the WAL, and assumes that no process writes to the file."""

    fingerprint: tuple[int, int]
    """The modification time and size that the file had when it was opened."""


def connect(path: Path, synchronous: Synchronous = Synchronous.FULL) -> Database:
    """Open the file for writing. A new file is readable only by its owner."""
    make_private_database(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise store_error(codes.STORE_READ_ONLY, path)
    db = _open(f"{path.absolute().as_uri()}?mode=rw", sqlite3.Connection)
    try:
        set_pragmas(db, synchronous)
    except BaseException:
        db.close()
        raise
    return db


def connect_readonly(path: Path) -> Database:
    """Open the file for reading. The file is never changed or created."""
    if not path.exists():
        raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{path}'.")
    check_side_files(path)
    db = _open(f"{path.absolute().as_uri()}?mode=ro", sqlite3.Connection)
    try:
        db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        if has_wal(path):
            raise _explain_unreadable_wal(path) or error from None
        # On a full or read-only disk SQLite cannot create the index of the WAL, but the file itself can be read.
        db = connect_immutable(path)
    except BaseException:
        db.close()
        raise
    db.execute("PRAGMA query_only = ON")
    return db


def connect_immutable(path: Path) -> ImmutableConnection:
    """Open the file without its WAL and without creating files next to it."""
    fingerprint = _fingerprint(path)
    db = _open(f"{path.absolute().as_uri()}?mode=ro&immutable=1", ImmutableConnection)
    db.fingerprint = fingerprint
    return db


def has_changed(db: Database, path: Path) -> bool:
    """Whether the file of an immutable connection was written to, so that reads may be inconsistent."""
    return isinstance(db, ImmutableConnection) and db.fingerprint != _fingerprint(path)


def has_wal(path: Path) -> bool:
    """Whether part of the database is still in its WAL."""
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _explain_unreadable_wal(path: Path) -> HoldfastError | None:
    """The error if the WAL cannot be read because its folder cannot be written to; else None."""
    if os.access(path.parent, os.W_OK):
        return None
    return HoldfastError(
        codes.STORE_READ_ONLY,
        f"'{path}' cannot be read: part of it is still in '{path.name}-wal', as after a crash, and reading that needs "
        f"write access to the folder '{path.parent}'. Copy both files to a folder that you can write to.",
    )


def extend_wal(path: Path) -> None:
    """Fill the WAL with zeros, up to the size at which SQLite starts it from the beginning. Call this within a write transaction.

    A commit that makes the file longer would take much longer to sync. SQLite ignores zeros after
    the last frame, and no other process appends while this one has the write lock.
    """
    try:
        wal = os.open(path.with_name(path.name + "-wal"), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        size, disk = os.fstat(wal).st_size, os.fstatvfs(wal)
        if size >= _WAL_BYTES or disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES:
            return
        os.lseek(wal, size, os.SEEK_SET)
        try:
            for begin in range(size, _WAL_BYTES, len(_ZEROS)):
                os.write(wal, _ZEROS[: _WAL_BYTES - begin])
            os.fsync(wal)
        except OSError:
            os.ftruncate(wal, size)
    finally:
        os.close(wal)


def set_pragmas(db: Database, synchronous: Synchronous) -> None:
    """Set the pragmas of a writing connection."""
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


def _fingerprint(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


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
