"""Checks, backs up, vacuums and reads a store's file, without opening it for sessions."""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import clock
from holdfast.store.errors import store_error
from holdfast.store.maintenance import CheckReport, VacuumReport
from holdfast.store.owner import this_process
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.sqlite.database import (
    Database,
    connect,
    connect_immutable,
    connect_readonly,
    has_changed,
    has_wal,
)
from holdfast.store.sqlite.errors import explain_sqlite_error, translate_errors
from holdfast.store.sqlite.integrity import MAX_PROBLEMS, check_tables, find_problems, table_problems
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.schema import check_version, migrate, migrations, schema_version
from holdfast.store.sqlite.write_tx import Holder, SqlTx

_CHECKPOINT_MS = 1000  # how long a vacuum waits for other processes that read the store
_STEPS_BETWEEN_CHECKS = 100_000
"""After how many instructions of its virtual machine SQLite calls the function that checks the time."""


@contextmanager
def open_for_reading(path: Path) -> Iterator[SqlReadTx]:
    """Read a store of this or an earlier version, without changing its file."""
    with _open_file(path) as db:
        check_tables(db, path)
        with _at_current_version(db, path) as current:
            yield SqlReadTx(current)


def check_file(path: Path) -> None:
    """Raise if the file is not a store that can be read. The file is not changed."""
    with translate_errors(path, reading=True):
        check_compatible(path, len(migrations()))
        with closing(connect_readonly(path)) as db:
            check_tables(db, path)


def check_compatible(path: Path, supported: int) -> None:
    """Raise if a newer version or another program wrote the file. The file is not changed."""
    if path.is_dir():
        raise HoldfastError(codes.STORE_UNREADABLE, f"'{path}' is a folder, not a store.")
    if not path.exists() or not path.stat().st_size:
        return
    db = connect_readonly(path) if has_wal(path) else connect_immutable(path)
    try:
        check_version(db, str(path), supported)
    finally:
        db.close()


@contextmanager
def _at_current_version(db: Database, path: Path) -> Iterator[Database]:
    """The database or, if it has an earlier schema, an upgraded copy in a temporary file."""
    if schema_version(db) == len(migrations()):
        yield db
        return
    with closing(_upgraded_copy(db, path)) as copy:
        yield copy


def connect_upgraded_copy(path: Path) -> Database:
    """Connect to an upgraded copy of the file, in a temporary file."""
    with closing(connect_readonly(path)) as db:
        check_tables(db, path)
        return _upgraded_copy(db, path)


def connect_indexed(path: Path) -> Database:
    """Connect to the file or, if it must be upgraded or indexed, to a copy for which that was done."""
    db = connect_readonly(path)
    try:
        is_current = schema_version(db) == len(migrations())
        if is_current and not db.execute("SELECT 1 FROM sessions WHERE unindexed").fetchone():
            return db
        copy = _upgraded_copy(db, path)
    except BaseException:
        db.close()
        raise
    db.close()
    holder = Holder(id="", owner=this_process(), lease_duration=timedelta())
    SqlTx(copy, holder, clock.now).index_messages()
    return copy


def _upgraded_copy(db: Database, path: Path) -> sqlite3.Connection:
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        _connection(db).backup(copy)
        migrate(copy, str(path), migrations())
    except BaseException:
        copy.close()
        raise
    return copy


@contextmanager
def _open_file(path: Path) -> Iterator[Database]:
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
    """Read everything, and report problems. Nothing is changed."""
    with _open_file(path) as file, _at_current_version(file, path) as db:
        if problems := table_problems(
            file
        ):  # do not read further: a query of such a view or table may never end
            version, size = schema_version(file), _size(path)
            return CheckReport(schema=version, sessions=0, events=0, bytes=size, problems=tuple(problems))
        db.execute("PRAGMA temp_store = MEMORY")  # the disk may be full
        db.execute("BEGIN")  # so that all reads are of one snapshot
        damage = tuple(dict.fromkeys(islice(find_problems(db, path), MAX_PROBLEMS)))
        sessions = events = 0
        try:
            sessions = _count(db, "SELECT count(*) FROM sessions")
            events = _count(db, "SELECT count(*) FROM events")
        except sqlite3.DatabaseError:
            if not damage:
                raise
        return CheckReport(
            schema=schema_version(file),
            sessions=sessions,
            events=events,
            bytes=_size(path),
            problems=damage,
        )


def check_quickly(path: Path, seconds: float) -> None:
    """Raise if damaged pages are found within these seconds."""
    if not path.is_file() or not path.stat().st_size:
        return
    deadline = time.monotonic() + seconds
    with translate_errors(path, reading=True), closing(connect_readonly(path)) as db:
        _connection(db).set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
        try:
            (finding,) = db.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                return
            raise
    if finding != "ok":
        raise store_error(codes.STORE_CORRUPT, path)


def backup(path: Path, copy: Path) -> None:
    """Copy a snapshot of the store and its anchor, even while it is in use. Never overwrite a file or leave a partial copy."""
    with _open_file(path) as db, translate_errors(copy):
        check_tables(db, path)
        copy_store(db, path, copy)


def copy_store(db: Database, path: Path, copy: Path) -> None:
    """Copy the store in this open database and its anchor."""
    copied_anchor = FileAnchor.for_database(copy)
    if copy.exists():
        raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' already exists. Nothing was changed.")
    if copied_anchor.exists():
        raise HoldfastError(
            codes.FILE_EXISTS,
            f"'{copied_anchor.path}' already exists and belongs to another copy. Nothing was changed.",
        )
    # Read the anchor before copying, so that it is never ahead of the copied chain.
    anchored = FileAnchor.for_database(path).read()
    _copy_file(db, path, copy)
    try:
        if anchored is not None:
            copied_anchor.write(anchored)
    except BaseException:
        # A copy without an anchor would fail verification.
        copy.unlink()
        raise


def _copy_file(db: Database, path: Path, copy: Path) -> None:
    partial = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}.partial")
    # The file is created inside the `try`, so that Ctrl-C at any moment leaves no partial copy.
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with _report_damage_of(path):
            _copy(_connection(db), partial, path)
        # A link, not a rename: linking fails if `copy` was created in the meantime.
        os.link(partial, copy)
    except FileExistsError:
        raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' already exists. Nothing was changed.") from None
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
    _sync(copy.parent)


def vacuum(path: Path) -> VacuumReport:
    """Rewrite the file without unused space."""
    report = check(path)
    if report.problems:
        # Do not open a damaged file for writing: it may be the only copy.
        raise HoldfastError(
            codes.STORE_CORRUPT, f"'{path}' is damaged. Nothing was changed. {report.problems[0]}"
        )
    with translate_errors(path), closing(connect(path)) as db:
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("VACUUM")
        db.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_MS}")
        (is_busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return VacuumReport(before=report.bytes, after=_size(path), is_in_use=bool(is_busy))


@contextmanager
def _report_damage_of(path: Path) -> Iterator[None]:
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


def _connection(db: Database) -> sqlite3.Connection:
    if not isinstance(db, sqlite3.Connection):
        raise TypeError("Only a sqlite3 connection can be copied.")
    return db


def _on_progress(*_: int) -> None:
    """Do nothing. Between two steps, Python can handle Ctrl-C."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    """The size of the file and of its write-ahead log."""
    size = path.stat().st_size
    with suppress(FileNotFoundError):
        size += path.with_name(f"{path.name}-wal").stat().st_size
    return size


def _count(db: Database, sql: str) -> int:
    row = db.execute(sql).fetchone()
    return int(row[0])
