"""Small and failing disks, for tests."""

import contextlib
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, Rows, connect
from tests.store.sessions import hold_session, reply


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB; skips the test if mounting is not permitted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
async def read_only_disk(tmp_path: Path) -> AsyncIterator[Path]:
    """A read-only disk with a store; skips the test if mounting is not permitted."""
    original, folder = tmp_path / "original", tmp_path / "mounted"
    folder.mkdir()
    async with SqliteStore(original / "holdfast.db") as store:
        await store.append(await hold_session(store), reply(1))
    mount("--bind", str(original), str(folder))
    mount("-o", "remount,bind,ro", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def mount(*arguments: str) -> None:
    """Mount a file system, or skip the test."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")


class Ballast:
    """A file that fills the disk, until it is dropped."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def take_all(self) -> None:
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 65536)

    def drop(self) -> None:
        self._file.unlink()


class FailingDisk:
    """A real connection whose commits fail with the SQLite error code `fails_with`, unless it is 0."""

    def __init__(self) -> None:
        self.fails_with = 0
        self._db: Database

    def open(self, path: Path) -> Database:
        self._db = connect(path)
        return self

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        if sql == "COMMIT" and self.fails_with:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.fails_with
            raise error
        return self._db.execute(sql, parameters)

    def close(self) -> None:
        self._db.close()


class FailingReads:
    """Makes the next `times` reads of events fail with this SQLite error code. The connections are real."""

    def __init__(self, store: SqliteStore, *, code: int, times: int) -> None:
        self.code = code
        self.times = times
        read_snapshot = store._readers._read_snapshot
        store._readers._read_snapshot = lambda db, work: read_snapshot(_FailingReader(self, db), work)


class _FailingReader:
    def __init__(self, failing: FailingReads, db: Database) -> None:
        self._failing = failing
        self._db = db

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        if "seq, at, kind, body" in sql and self._failing.times:
            self._failing.times -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._failing.code
            raise error
        return self._db.execute(sql, parameters)

    def close(self) -> None:
        self._db.close()
