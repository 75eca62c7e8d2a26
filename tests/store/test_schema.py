"""The file's version: migrated forward, never backward, and never touched when it is newer."""

import sqlite3
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.store.schema import sections, split_sections
from holdfast.store.sqlite import SqliteStore
from tests.store.sessions import new_session, refused, reply, texts

pytestmark = pytest.mark.anyio

LATER = (
    *sections(),
    """
    CREATE TABLE later (n INTEGER PRIMARY KEY) STRICT;
    -- A trigger has semicolons inside.
    CREATE TRIGGER count_sessions AFTER INSERT ON sessions BEGIN
        INSERT INTO later (n) VALUES (new.n);
    END;
    """,
    "ALTER TABLE sessions ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';",
)


@pytest.mark.promise("STO-05")
async def test_an_older_file_is_brought_forward_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as old:
        session_id = await new_session(old)
        await old.append(session_id, reply(1))

    async with SqliteStore(path, schema=LATER) as new:
        await new.append(session_id, reply(2))
        await new_session(new)
        assert await texts(new, session_id) == ["piece 1 ", "piece 2 "]

    assert _ask(path, "PRAGMA user_version") == [(3,)]
    assert _ask(path, "SELECT n FROM later") == [(2,)]
    assert _ask(path, "SELECT colour FROM sessions") == [("red",), ("red",)]


@pytest.mark.promise("STO-05")
async def test_a_newer_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, schema=LATER) as new:
        await new_session(new)
    before = _bytes(tmp_path)

    with refused(codes.STORE_TOO_NEW) as caught:
        async with SqliteStore(path):
            pass

    assert "schema is 3, this one knows 1" in caught.value.message
    assert _bytes(tmp_path) == before


@pytest.mark.promise("STO-05")
async def test_a_newer_file_that_still_has_a_log_to_replay_is_refused_untouched(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy"
    copy.mkdir()
    async with SqliteStore(path, schema=LATER) as new:
        await new_session(new)
        # As a crash would leave it: the version stands in the log alone.
        for name in ("holdfast.db", "holdfast.db-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    before = _bytes(copy)

    with refused(codes.STORE_TOO_NEW):
        async with SqliteStore(copy / "holdfast.db"):
            pass

    after = _bytes(copy)
    assert {name: after[name] for name in before} == before


@pytest.mark.promise("STO-05")
async def test_a_migration_that_fails_leaves_the_file_at_its_version(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as old:
        session_id = await new_session(old)
    broken = (*sections(), "CREATE TABLE fine (n INTEGER); INSERT INTO nowhere VALUES (1);")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        async with SqliteStore(path, schema=broken):
            pass

    assert _ask(path, "PRAGMA user_version") == [(1,)]
    assert _ask(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'fine'") == [(0,)]
    async with SqliteStore(path) as old:
        assert await old.session(session_id) is not None


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "recipes.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()
    before = path.read_bytes()

    with refused(codes.STORE_FOREIGN):
        async with SqliteStore(path):
            pass

    assert path.read_bytes() == before


def test_the_sections_of_a_schema_count_from_one() -> None:
    assert split_sections("-- version 1\na\n-- version 2\nb\n") == ("\na\n", "\nb\n")
    with pytest.raises(ValueError, match="count from 1"):
        split_sections("-- version 1\na\n-- version 3\nb\n")


def _ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
