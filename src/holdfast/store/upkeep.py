"""Look after a store's file: find damage, copy it while it is in use, give back the space it does not need."""

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
from holdfast.store.database import Database, connect, connect_to_read, explain, is_disturbed, told
from holdfast.store.problems import MOST, problems
from holdfast.store.schema import sections
from holdfast.store.sqlite import refuse_what_is_not_ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is in a store, and what is wrong with it."""

    schema: int
    sessions: int
    events: int
    bytes: int
    problems: tuple[str, ...]


@contextmanager
def reading(path: Path) -> Iterator[Database]:
    """The file, opened to be read, if it is a store that this version knows."""
    with told(path, reads=True):
        if not path.is_file():
            raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{path}'.")
        refuse_what_is_not_ours(path, len(sections()))
        with closing(connect_to_read(path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sessions'").fetchone():
                raise HoldfastError(codes.STORE_UNREADABLE, f"'{path}' has nothing in it yet.")
            try:
                yield db
            finally:
                if is_disturbed(db, path):
                    raise HoldfastError(
                        codes.STORE_BUSY,
                        f"'{path}' was written to while it was read on a full disk. Try again.",
                    )


def check(path: Path) -> Report:
    """Read everything and say what does not fit; changes nothing."""
    with reading(path) as db:
        db.execute("PRAGMA temp_store = MEMORY")  # the disk may be full
        db.execute("BEGIN")  # all of it as it is at one moment
        found = tuple(islice(problems(db, path), MOST))
        sessions = events = 0
        try:
            sessions = _count(db, "SELECT count(*) FROM sessions")
            events = _count(db, "SELECT count(*) FROM events")
        except sqlite3.DatabaseError:
            if not found:
                raise
        return Report(
            schema=_count(db, "PRAGMA user_version"),
            sessions=sessions,
            events=events,
            bytes=path.stat().st_size,
            problems=found,
        )


def backup(path: Path, copy: Path) -> None:
    """Copy the store as it is at one moment, while it is in use; nothing is overwritten, and no half copy is left."""
    if copy.exists():
        raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' exists already. Nothing was changed.")
    partial = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}.partial")
    with reading(path) as db, told(copy):
        if not isinstance(db, sqlite3.Connection):
            raise TypeError("Only SQLite's own connections can copy.")
        try:  # from before it is there: Ctrl-C may come at any moment
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with _damage_told(path):
                _copy(db, partial, path)
            # A link, not a rename: it fails where somebody was quicker.
            os.link(partial, copy)
        except FileExistsError:
            raise HoldfastError(codes.FILE_EXISTS, f"'{copy}' exists already. Nothing was changed.") from None
        finally:
            for ending in ("", "-journal", "-wal", "-shm"):
                partial.with_name(partial.name + ending).unlink(missing_ok=True)
        _sync(copy.parent)


def vacuum(path: Path) -> tuple[int, int]:
    """Write the file anew without its holes; its size before and after."""
    report = check(path)
    if report.problems:
        # Not even opened to be written to: what is damaged may be all that is left.
        raise HoldfastError(
            codes.STORE_CORRUPT, f"'{path}' is damaged. Nothing was changed. {report.problems[0]}"
        )
    with told(path), closing(connect(path)) as db:
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return report.bytes, path.stat().st_size


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """What is damaged in a copy is damaged in what was copied."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        told = explain(error, path)
        if told is None or told.code is not codes.STORE_CORRUPT:
            raise
        raise told from error


def _copy(db: sqlite3.Connection, partial: Path, path: Path) -> None:
    with closing(sqlite3.connect(partial, isolation_level=None)) as target:
        # All steps read from one moment: otherwise SQLite starts over whenever somebody commits in between.
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        db.backup(target, pages=4096, progress=_hear)
        db.execute("ROLLBACK")
        # Whoever holds a session of the original does not hold it in the copy.
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
        target.execute("DELETE FROM leases")
        (finding,) = target.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise HoldfastError(
                codes.STORE_CORRUPT, f"'{path}' is damaged, and no copy was made of it: {finding}."
            )
    _sync(partial)


def _hear(*_: int) -> None:
    """Between two steps Python runs, and hears of Ctrl-C."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _count(db: Database, sql: str) -> int:
    row = db.execute(sql).fetchone()
    return int(row[0])
