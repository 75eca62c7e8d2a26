"""Disks that are small or fail, for tests of what happens then."""

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.database import Database, Rows, Synchronous, connect


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB, if we may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def mount(*arguments: str) -> None:
    """Mount something, or skip the test."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"may not mount here: {done.stderr.strip()}")


class Ballast:
    """A file that takes all the space there is, until it is dropped."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def take_all(self) -> None:
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 65536)

    def drop(self) -> None:
        self._file.unlink()


class Failing:
    """A real connection, whose commits fail with this error of SQLite's for as long as there is one."""

    def __init__(self) -> None:
        self.fails_with = 0
        self._db: Database

    def open(self, path: Path, synchronous: Synchronous) -> Database:
        self._db = connect(path, synchronous)
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
