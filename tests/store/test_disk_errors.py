"""Full, read-only and failing disks, and files that are not a store: clear errors, and nothing is overwritten."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Replied
from holdfast.store.maintenance import backup, check, vacuum
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, connect
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.readers import Readers
from holdfast.store.store import Tx
from holdfast.store.types import AuditRow, Hold
from tests.store.disks import Ballast, FailingDisk, mount, read_only_disk, small_disk
from tests.store.sessions import hold_session, new_session, raises_code, reply, texts, write_session

__all__ = ["read_only_disk", "small_disk"]
pytestmark = pytest.mark.anyio
BIG = Replied(message_id="msg_0", text="x" * 100_000)


async def test_full_disk_keeps_acknowledged_events_and_writing_resumes_when_space_is_freed(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    async with SqliteStore(small_disk / "holdfast.db") as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        kept = 0
        with raises_code(codes.STORE_FULL) as caught:
            while True:
                await store.append(hold, BIG)
                kept += 1
        assert "This write was not stored" in caught.value.message
        assert len(await texts(store, session_id)) == kept > 0

        ballast.unlink()

        assert (await store.append(hold, reply(1))).seq == kept + 1
    assert check(small_disk / "holdfast.db").problems == ()


async def test_full_file_fails_only_the_event_that_does_not_fit(tmp_path: Path) -> None:
    def connect_with_few_pages(path: Path) -> Database:
        db = connect(path)
        db.execute("PRAGMA max_page_count = 100").fetchall()
        return db

    async with SqliteStore(tmp_path / "holdfast.db", connect=connect_with_few_pages) as store:
        hold = await hold_session(store)
        appender = store.appender(hold)
        pending = [await appender.append(reply(number)) for number in range(5)]
        pending += [await appender.append(Replied(message_id="msg_0", text="x" * 1_000_000))]

        assert [await event.wait_durable() for event in pending[:5]] == [1, 2, 3, 4, 5]
        with raises_code(codes.STORE_FULL):
            await pending[5].wait_durable()

        assert (await store.append(hold, reply(6))).seq == 6


async def test_store_is_not_created_on_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * shutil.disk_usage(small_disk).free)

    with raises_code(codes.STORE_FULL):
        async with SqliteStore(small_disk / "holdfast.db"):
            pass

    ballast.unlink()
    async with SqliteStore(small_disk / "holdfast.db") as store:
        assert await new_session(store)


async def test_read_is_repeated_if_the_file_changed_on_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "holdfast.db"
    await write_session(path, 100)
    ballast = Ballast(small_disk)
    ballast.take_all()
    attempts: list[SqlReadTx] = []

    def work(tx: SqlReadTx) -> int:
        attempts.append(tx)
        if len(attempts) == 1:
            ballast.drop()
            asyncio.run(write_session(path, 100))
        return len(tx.sessions(SessionQuery(visibility=ALL_SESSIONS)).items)

    readers = Readers(path)
    try:
        result = await readers.run(work)
    finally:
        await readers.stop()

    assert (result, len(attempts)) == (2, 2)


async def test_store_on_a_read_only_disk_can_be_read_but_not_written(read_only_disk: Path) -> None:
    path = read_only_disk / "holdfast.db"
    before = path.read_bytes()

    with raises_code(codes.STORE_READ_ONLY) as caught:
        async with SqliteStore(path):
            pass

    assert "cannot be written to. Nothing was changed" in caught.value.message
    assert path.read_bytes() == before
    assert (check(path).events, check(path).problems) == (1, ())
    with raises_code(codes.STORE_READ_ONLY):
        vacuum(path)
    with raises_code(codes.STORE_READ_ONLY):
        backup(path, read_only_disk / "copy.db")


async def test_unreadable_wal_on_a_read_only_disk_is_reported_with_its_folder(tmp_path: Path) -> None:
    original, folder = tmp_path / "original", tmp_path / "mounted"
    original.mkdir()
    folder.mkdir()
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        await store.append(await hold_session(store), reply(1))
        # As after a crash and a reboot: the WAL is there, but its index is not.
        for name in ("holdfast.db", "holdfast.db-wal"):
            shutil.copy(tmp_path / name, original)
    mount("--bind", str(original), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        with raises_code(codes.STORE_READ_ONLY) as caught:
            check(folder / "holdfast.db")
    finally:
        subprocess.run(["umount", str(folder)], check=True)

    assert f"needs write access to the folder '{folder}'" in caught.value.message


@pytest.mark.parametrize("content", [b"not a database at all " * 300, b"SQLite format 3\0" + b"\xff" * 8000])
async def test_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(content)

    with raises_code(codes.STORE_CORRUPT) as caught:
        async with SqliteStore(path):
            pass

    assert f"'{path}' is damaged or not a database. Nothing was changed" in caught.value.message
    assert path.read_bytes() == content


async def test_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()

    with raises_code(codes.STORE_UNREADABLE):
        async with SqliteStore(tmp_path / "holdfast.db"):
            pass


async def test_store_locked_by_another_process_is_busy(tmp_path: Path) -> None:
    def connect_with_short_timeout(path: Path) -> Database:
        db = connect(path)
        db.execute("PRAGMA busy_timeout = 1")
        return db

    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=connect_with_short_timeout) as store:
        hold = await hold_session(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with raises_code(codes.STORE_BUSY):
                await store.append(hold, reply(1))
            other.execute("ROLLBACK")

        assert (await store.append(hold, reply(1))).seq == 1


async def test_nothing_is_written_after_a_failed_commit_sync(tmp_path: Path) -> None:
    disk = FailingDisk()
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=disk.open) as store:
        hold = await hold_session(store)
        disk.fails_with = sqlite3.SQLITE_IOERR_FSYNC
        with raises_code(codes.STORE_FAILED):
            await store.append(hold, reply(1))
        disk.fails_with = 0

        with raises_code(codes.STORE_FAILED):
            await store.append(hold, reply(2))


async def test_wal_index_that_cannot_grow_is_reported_as_a_full_disk(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        hold = await hold_session(store)
        disk.fails_with = sqlite3.SQLITE_IOERR_SHMSIZE
        with raises_code(codes.STORE_FULL):
            await store.append(hold, reply(1))
        disk.fails_with = 0

        assert (await store.append(hold, reply(1))).seq == 1


@pytest.mark.promise("STO-04")
async def test_failed_release_is_retried_with_the_next_commit(tmp_path: Path) -> None:
    disk = FailingDisk()
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=disk.open) as store, SqliteStore(path) as other:
        hold = await hold_session(store)
        session_id = hold.session_id
        disk.fails_with = sqlite3.SQLITE_FULL
        await store.release(hold)
        with raises_code(codes.SESSION_HELD):
            await other.acquire(session_id)
        disk.fails_with = 0

        await new_session(store)

        assert (await other.acquire(session_id)).session_id == session_id


async def test_session_can_be_acquired_again_after_a_failed_release(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        disk.fails_with = sqlite3.SQLITE_FULL
        await store.release(hold)
        disk.fails_with = 0

        await store.acquire(session_id)
        await new_session(store)

        lease = await store.read(lambda tx: tx.lease(session_id))
        assert lease is not None


async def test_missing_folder_and_file_in_place_of_a_folder_are_refused(tmp_path: Path) -> None:
    path, file = tmp_path / "holdfast.db", tmp_path / "file"
    async with SqliteStore(path) as store:
        await new_session(store)
    file.write_text("precious")

    with raises_code(codes.STORE_UNREADABLE) as missing:
        backup(path, tmp_path / "nowhere" / "copy.db")
    with raises_code(codes.STORE_UNREADABLE) as blocked:
        backup(path, file / "copy.db")
    with raises_code(codes.STORE_UNREADABLE) as opened:
        async with SqliteStore(file / "holdfast.db"):
            pass

    assert missing.value.message == (
        f"There is no folder '{tmp_path}/nowhere'. Create it, or choose another path."
    )
    assert [blocked.value.message, opened.value.message] == [
        f"'{file}/{name}' cannot be created: '{file}' is not a folder. Choose another path."
        for name in ("copy.db", "holdfast.db")
    ]
    assert file.read_text() == "precious"


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "holdfast.db"
    old_mask = os.umask(0)
    try:
        async with SqliteStore(path) as store:
            await new_session(store)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(old_mask)

    assert modes == {"holdfast.db": 0o600, "holdfast.db-wal": 0o600, "holdfast.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_permissions_of_an_existing_file_are_restricted(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    path.chmod(0o644)

    async with SqliteStore(path):
        pass

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_failed_sync_in_the_background_stops_the_store(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open, lease_seconds=0.15) as store:
        hold = await hold_session(store)
        disk.fails_with = sqlite3.SQLITE_IOERR_FSYNC
        await asyncio.sleep(0.3)
        disk.fails_with = 0
        with raises_code(codes.STORE_FAILED):
            await store.append(hold, reply(1))


def _append_audit_row(tx: Tx, _: Hold) -> None:
    tx.audit_append(AuditRow(seq=1, body="{}", digest=b"x"))


def _append_event(tx: Tx, hold: Hold) -> None:
    tx.append(hold, reply(1))


def _append_events(tx: Tx, hold: Hold) -> None:
    tx.append_many(hold, [reply(1), reply(2)])


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize(
    ("table", "write"), [("audit", _append_audit_row), ("events", _append_event), ("events", _append_events)]
)
async def test_rows_discarded_by_a_trigger_are_reported_as_damage(
    tmp_path: Path, table: str, write: Callable[[Tx, Hold], object]
) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute(f"CREATE TRIGGER t BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END")
            other.commit()

        for _ in range(2):
            with raises_code(codes.STORE_CORRUPT):
                await store.write(lambda tx: write(tx, hold))
