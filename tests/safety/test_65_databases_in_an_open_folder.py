"""Attack 65: another user of the machine reads Holdfast's databases, in a folder that was made before."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.builtin.tasks.store import TaskStore
from holdfast.model.private_files import make_private_database
from holdfast.store.sqlite.database import connect


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder that was made before, open to everyone."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    return folder


def modes(folder: Path) -> dict[str, str]:
    return {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}


def test_new_database_and_its_side_files_are_private_in_an_open_folder(folder: Path):
    TaskStore(lambda: folder / "tasks.db").add("blog", "Write", "", "")
    database = connect(folder / "holdfast.db")  # kept open, so that its side files stay
    database.execute("CREATE TABLE one (two)")

    assert set(modes(folder).values()) == {"0o600"}
    database.close()


def test_existing_database_and_its_side_files_become_private(folder: Path):
    with sqlite3.connect(folder / "tasks.db") as writer:  # kept open, so that its side files stay
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE one (two)")
    assert modes(folder) == dict.fromkeys(["tasks.db", "tasks.db-shm", "tasks.db-wal"], "0o644"), "control"

    TaskStore(lambda: folder / "tasks.db").list("blog", None)

    assert modes(folder) == dict.fromkeys(["tasks.db", "tasks.db-shm", "tasks.db-wal"], "0o600")
    writer.close()


def test_missing_folder_is_made_private(tmp_path: Path):
    make_private_database(tmp_path / "new" / "tasks.db")

    assert modes(tmp_path) == {"new": "0o700"}
