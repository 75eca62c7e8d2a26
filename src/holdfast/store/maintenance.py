"""Check, back up and vacuum a store's file."""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import Database, connect, connect_readonly, has_changed
from holdfast.store.errors import explain_sqlite_error, translate_errors
from holdfast.store.integrity import MAX_PROBLEMS, find_problems
from holdfast.store.schema import migrations
from holdfast.store.sqlite import check_compatible


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The contents of a store and its problems."""

    schema: int
    sessions: int
    events: int
    bytes: int
    problems: tuple[str, ...]


@contextmanager
def open_for_reading(path: Path) -> Iterator[Database]:
    """A read-only connection to a store that this version supports."""
    with translate_errors(path, reading=True):
        if not path.is_file():
            raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{path}'.")
        check_compatible(path, len(migrations()))
        with closing(connect_readonly(path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sessions'").fetchone():
                raise HoldfastError(codes.STORE_UNREADABLE, f"'{path}' is empty.")
            try:
                yield db
            finally:
                if has_changed(db, path):
                    raise HoldfastError(
                        codes.STORE_BUSY,
                        f"'{path}' was changed while it was being read. Try again.",
                    )


def check(path: Path) -> CheckReport:
    """Read everything and report problems; changes nothing."""
    with open_for_reading(path) as db:
        db.execute("PRAGMA temp_store = MEMORY")  # the disk may be full
        db.execute("BEGIN")  # so that all reads are of one snapshot
        found = tuple(islice(find_problems(db, path), MAX_PROBLEMS))
        sessions = events = 0
        try:
            sessions = _count(db, "SELECT count(*) FROM sessions")
            events = _count(db, "SELECT count(*) FROM events")
        except sqlite3.DatabaseError:
            if not found:
                raise
        return CheckReport(
            schema=_count(db, "PRAGMA user_version"),
            sessions=sessions,
            events=events,
            bytes=path.stat().st_size,
            problems=found,
        )


def backup(path: Path, copy: Path) -> None:
    """Copy a snapshot of the store, even while it is in use. Never overwrites a file or leaves a partial copy."""
    if copy.exists():
        raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' already exists. Nothing was changed.")
    partial = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}.partial")
    with open_for_reading(path) as db, translate_errors(copy):
        if not isinstance(db, sqlite3.Connection):
            raise TypeError("Only a sqlite3 connection can be backed up.")
        # The file is created inside the `try`, so that Ctrl-C at any moment leaves no partial copy.
        try:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with _report_damage_of(path):
                _copy(db, partial, path)
            # A link, not a rename: linking fails if `copy` was created in the meantime.
            os.link(partial, copy)
        except FileExistsError:
            raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' already exists. Nothing was changed.") from None
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):
                partial.with_name(partial.name + suffix).unlink(missing_ok=True)
        _sync(copy.parent)


def vacuum(path: Path) -> tuple[int, int]:
    """Rewrite the file without unused space. Returns its size before and after."""
    report = check(path)
    if report.problems:
        # Do not open a damaged file for writing: it may be the only copy.
        raise HoldfastError(
            codes.STORE_CORRUPT, f"'{path}' is damaged. Nothing was changed. {report.problems[0]}"
        )
    with translate_errors(path), closing(connect(path)) as db:
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return report.bytes, path.stat().st_size


@contextmanager
def _report_damage_of(path: Path) -> Iterator[None]:
    """Report damage found while copying as damage of the original."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        translated = explain_sqlite_error(error, path)
        if translated is None or translated.code is not codes.STORE_CORRUPT:
            raise
        raise translated from error


def _copy(db: sqlite3.Connection, partial: Path, path: Path) -> None:
    with closing(sqlite3.connect(partial, isolation_level=None)) as target:
        # One snapshot for all steps: otherwise SQLite starts over after every commit of another connection.
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        db.backup(target, pages=4096, progress=_on_progress)
        db.execute("ROLLBACK")
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
        # Leases of the original are not valid in the copy.
        target.execute("DELETE FROM leases")
        (finding,) = target.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise HoldfastError(codes.STORE_CORRUPT, f"'{path}' is damaged and was not copied: {finding}.")
    _sync(partial)


def _on_progress(*_: int) -> None:
    """Does nothing: between two steps, Python can handle Ctrl-C."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _count(db: Database, sql: str) -> int:
    row = db.execute(sql).fetchone()
    return int(row[0])
