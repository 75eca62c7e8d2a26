"""Check, backup and vacuum of a store's file."""

import asyncio
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Replied
from holdfast.store.maintenance import backup, check, open_for_reading, vacuum
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from tests.store.disks import Ballast, read_only_disk, small_disk
from tests.store.sessions import hold_session, new_session, raises_code, reply, texts, write_session

__all__ = ["read_only_disk", "small_disk"]
pytestmark = pytest.mark.anyio
BIG = Replied(message_id="msg_0", text="x" * 100_000)


async def test_store_can_be_backed_up_from_a_read_only_disk(read_only_disk: Path, tmp_path: Path) -> None:
    backup(read_only_disk / "holdfast.db", tmp_path / "copy.db")

    assert check(tmp_path / "copy.db").events == 1


async def test_damaged_page_is_found_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        async with store.appender(hold) as appender:
            for number in range(5000):
                await appender.append(reply(number))
    _damage(path, "events")
    before = path.read_bytes()

    report = check(path)

    assert report.problems
    async with SqliteStore(path) as store:
        with raises_code(codes.STORE_CORRUPT):
            await texts(store, session_id)
    with raises_code(codes.STORE_CORRUPT) as caught:
        backup(path, tmp_path / "copy.db")
    assert f"'{path}' is damaged" in caught.value.message  # not the copy
    assert path.read_bytes() == before
    assert [name for name in os.listdir(tmp_path) if "copy" in name] == []


async def test_backup_of_a_damaged_store_names_the_store_and_leaves_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    _damage(path, "leases")  # which the backup deletes

    with raises_code(codes.STORE_CORRUPT) as caught:
        backup(path, tmp_path / "copy.db")

    assert caught.value.message.startswith(f"'{path}' is damaged")
    assert [name for name in os.listdir(tmp_path) if "copy" in name] == []


async def test_backup_of_a_store_in_use_is_complete_and_has_no_leases(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        async with store.appender(hold) as appender:
            for number in range(2000):
                await appender.append(reply(number))
                if number == 1000:
                    backup(path, copy)

    report = check(copy)
    assert (report.problems, report.sessions) == ((), 1)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    async with SqliteStore(copy) as restored:
        assert await texts(restored, session_id) == [f"piece {number} " for number in range(report.events)]
        await restored.acquire(session_id)


async def test_backup_never_overwrites(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    copy.write_bytes(b"precious")

    with raises_code(codes.FILE_EXISTS):
        backup(path, copy)

    assert copy.read_bytes() == b"precious"


async def test_vacuum_frees_the_space_of_deleted_sessions(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        hold, other = await hold_session(store), await hold_session(store)
        async with store.appender(hold) as appender:
            for _ in range(50):
                await appender.append(BIG)
        await store.append(other, reply(1))
        await store.write(lambda tx: tx.delete(hold))

        report = vacuum(path)

        assert (report.after < report.before / 10, report.is_in_use) == (True, False)
        assert await texts(store, other.session_id) == ["piece 1 "]


async def test_damaged_store_is_not_vacuumed(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        for number in range(3):
            await store.append(hold, reply(number))
    backup(path, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("DELETE FROM events WHERE seq = 2")
    before = copy.read_bytes()

    with raises_code(codes.STORE_CORRUPT) as caught:
        vacuum(copy)

    assert f"'{copy}' is damaged. Nothing was changed. The events of {session_id}" in caught.value.message
    assert copy.read_bytes() == before


async def test_gap_and_damaged_event_are_found(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        for number in range(5):
            await store.append(hold, reply(number))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM events WHERE seq = 3")
        db.execute("UPDATE events SET body = x'7b' WHERE seq = 5")

    assert check(path).problems == (
        f"The events of {session_id} have gaps: 4 events, but the last is number 5.",
        f"Event 5 of {session_id}: An event of the kind replied is damaged: Input data was truncated.",
    )


async def test_maintenance_of_a_missing_store_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "holdfast.db"
    for look in (check, vacuum):
        with raises_code(codes.STORE_UNREADABLE):
            look(missing)
    with raises_code(codes.STORE_UNREADABLE):
        backup(missing, tmp_path / "copy.db")

    assert os.listdir(tmp_path) == []


def test_write_during_a_read_on_a_full_disk_is_not_reported_as_damage(
    small_disk: Path,
) -> None:
    path = small_disk / "holdfast.db"
    asyncio.run(write_session(path, 100))
    ballast = Ballast(small_disk)
    ballast.take_all()

    with raises_code(codes.STORE_BUSY) as caught, open_for_reading(path) as tx:
        assert len(tx.sessions(SessionQuery(visibility=ALL_SESSIONS)).items) == 1
        ballast.drop()
        asyncio.run(write_session(path, 100))
        tx.sessions(SessionQuery(visibility=ALL_SESSIONS))

    assert f"'{path}' was changed while it was being read. Try again." in caught.value.message
    assert (check(path).events, check(path).problems) == (200, ())


def _damage(path: Path, table: str) -> None:
    """Overwrite a page in the middle of a table."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    shutil.copy(path, path.with_suffix(".tmp"))
    with path.with_suffix(".tmp").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xde\xad" * (size // 2))
    path.with_suffix(".tmp").replace(path)
