"""Migrations: forward only, and a newer file is never changed."""

import sqlite3
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.schema import migrations, split_migrations
from tests.store.sessions import hold_session, new_session, raises_code, reply, texts

pytestmark = pytest.mark.anyio

LATER = (
    *migrations(),
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
async def test_older_file_is_migrated_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as old:
        hold = await hold_session(old)
        session_id = hold.session_id
        await old.append(hold, reply(1))

    async with SqliteStore(path, schema=LATER) as new:
        await new.append(await new.acquire(session_id), reply(2))
        await new_session(new)
        assert await texts(new, session_id) == ["piece 1 ", "piece 2 "]

    assert _query(path, "PRAGMA user_version") == [(5,)]
    assert _query(path, "SELECT n FROM later") == [(2,)]
    assert _query(path, "SELECT colour FROM sessions") == [("red",), ("red",)]


@pytest.mark.promise("STO-05")
async def test_newer_file_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, schema=LATER) as new:
        await new_session(new)
    before = _bytes(tmp_path)

    with raises_code(codes.STORE_TOO_NEW) as caught:
        async with SqliteStore(path):
            pass

    assert "schema 5; this version supports 3" in caught.value.message
    assert _bytes(tmp_path) == before


@pytest.mark.promise("STO-05")
async def test_newer_file_with_an_unreplayed_wal_is_refused_and_unchanged(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy"
    copy.mkdir()
    async with SqliteStore(path, schema=LATER) as new:
        await new_session(new)
        # As a crash would leave it: the version is only in the WAL.
        for name in ("holdfast.db", "holdfast.db-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    before = _bytes(copy)

    with raises_code(codes.STORE_TOO_NEW):
        async with SqliteStore(copy / "holdfast.db"):
            pass

    after = _bytes(copy)
    assert {name: after[name] for name in before} == before


@pytest.mark.promise("STO-05")
async def test_failed_migration_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as old:
        hold = await hold_session(old)
        session_id = hold.session_id
    broken = (*migrations(), "CREATE TABLE fine (n INTEGER); INSERT INTO nowhere VALUES (1);")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        async with SqliteStore(path, schema=broken):
            pass

    assert _query(path, "PRAGMA user_version") == [(3,)]
    assert _query(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'fine'") == [(0,)]
    async with SqliteStore(path) as old:
        assert await old.session(session_id) is not None


async def test_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "recipes.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()
    before = path.read_bytes()

    with raises_code(codes.STORE_FOREIGN):
        async with SqliteStore(path):
            pass

    assert path.read_bytes() == before


def test_schema_versions_count_from_one() -> None:
    assert split_migrations("-- version 1\na\n-- version 2\nb\n") == ("\na\n", "\nb\n")
    with pytest.raises(ValueError, match="count from 1"):
        split_migrations("-- version 1\na\n-- version 3\nb\n")


def _query(path: Path, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
