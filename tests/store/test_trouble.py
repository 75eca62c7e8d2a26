"""Disks that are full, read-only or failing, and files that are not what they should be: told clearly, and left alone."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Replied
from holdfast.store.database import Database, Synchronous, connect
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.readers import Readers
from holdfast.store.rows import AuditRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlreads import SqlReads
from holdfast.store.upkeep import backup, check, reading, vacuum
from tests.store.disks import Ballast, Failing, mount, small_disk
from tests.store.sessions import new_session, refused, reply, texts

__all__ = ["small_disk"]
pytestmark = pytest.mark.anyio
BIG = Replied(message_id="msg_0", text="x" * 100_000)


@pytest.fixture
async def read_only_disk(tmp_path: Path):
    """A disk with a store on it that cannot be written to, if we may mount one."""
    original, folder = tmp_path / "original", tmp_path / "mounted"
    folder.mkdir()
    async with SqliteStore(original / "holdfast.db") as store:
        await store.append(await new_session(store), reply(1))
    mount("--bind", str(original), str(folder))
    mount("-o", "remount,bind,ro", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_is_told_keeps_what_was_acknowledged_and_can_be_freed(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    async with SqliteStore(small_disk / "holdfast.db") as store:
        session_id = await new_session(store)
        kept = 0
        with refused(codes.STORE_FULL) as caught:
            while True:
                await store.append(session_id, BIG)
                kept += 1
        assert "Nothing of this write was kept; all earlier ones were" in caught.value.message
        assert len(await texts(store, session_id)) == kept > 0

        ballast.unlink()

        assert (await store.append(session_id, reply(1))).seq == kept + 1
    assert check(small_disk / "holdfast.db").problems == ()


async def test_a_full_file_is_told_and_leaves_the_others_of_its_batch_unharmed(tmp_path: Path) -> None:
    def of_few_pages(path: Path, synchronous: Synchronous) -> Database:
        db = connect(path, synchronous)
        db.execute("PRAGMA max_page_count = 100").fetchall()
        return db

    async with SqliteStore(tmp_path / "holdfast.db", connect=of_few_pages) as store:
        session_id = await new_session(store)
        stream = store.appender(session_id)
        tickets = [await stream.append(BIG if number == 5 else reply(number)) for number in range(5)]
        tickets += [await stream.append(Replied(message_id="msg_0", text="x" * 1_000_000))]

        assert [await ticket.durable() for ticket in tickets[:5]] == [1, 2, 3, 4, 5]
        with refused(codes.STORE_FULL):
            await tickets[5].durable()

        assert (await store.append(session_id, reply(6))).seq == 6


async def test_a_store_cannot_be_made_on_a_full_disk_and_nothing_is_left_half_made(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * shutil.disk_usage(small_disk).free)

    with refused(codes.STORE_FULL):
        async with SqliteStore(small_disk / "holdfast.db"):
            pass

    ballast.unlink()
    async with SqliteStore(small_disk / "holdfast.db") as store:
        assert await new_session(store)


def test_a_store_that_was_written_to_while_a_full_disk_was_read_is_not_called_damaged(
    small_disk: Path,
) -> None:
    path = small_disk / "holdfast.db"
    asyncio.run(_say(path, 100))
    ballast = Ballast(small_disk)
    ballast.take_all()

    with refused(codes.STORE_BUSY) as caught, reading(path) as db:
        db.execute("SELECT count(*) FROM events").fetchone()
        ballast.drop()
        asyncio.run(_say(path, 100))
        db.execute("SELECT * FROM events").fetchall()

    assert f"'{path}' was written to while it was read on a full disk. Try again." in caught.value.message
    assert (check(path).events, check(path).problems) == (200, ())


async def test_what_was_written_to_while_a_full_disk_was_read_is_read_again(small_disk: Path) -> None:
    path = small_disk / "holdfast.db"
    await _say(path, 100)
    ballast = Ballast(small_disk)
    ballast.take_all()
    begun: list[SqlReads] = []

    def work(reads: SqlReads) -> int:
        begun.append(reads)
        if len(begun) == 1:
            ballast.drop()
            asyncio.run(_say(path, 100))
        return len(reads.sessions(SessionQuery(reach=OPERATOR)).items)

    readers = Readers(path)
    try:
        outcome = await readers.run(work)
    finally:
        await readers.stop()

    assert (outcome, len(begun)) == (2, 2)


async def _say(path: Path, count: int) -> None:
    """Write a session of its own to the file, and let go of it."""
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        async with store.appender(session_id) as stream:
            for number in range(count):
                await stream.append(reply(number))


async def test_a_read_only_disk_is_told_and_can_still_be_read(read_only_disk: Path) -> None:
    path = read_only_disk / "holdfast.db"
    before = path.read_bytes()

    with refused(codes.STORE_READ_ONLY) as caught:
        async with SqliteStore(path):
            pass

    assert "cannot be written to. Nothing was changed" in caught.value.message
    assert path.read_bytes() == before
    assert (check(path).events, check(path).problems) == (1, ())
    with refused(codes.STORE_READ_ONLY):
        vacuum(path)
    with refused(codes.STORE_READ_ONLY):
        backup(path, read_only_disk / "copy.db")


async def test_a_log_on_a_read_only_disk_is_told_with_the_folder_as_the_reason(tmp_path: Path) -> None:
    original, folder = tmp_path / "original", tmp_path / "mounted"
    original.mkdir()
    folder.mkdir()
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        await store.append(await new_session(store), reply(1))
        for name in (
            "holdfast.db",
            "holdfast.db-wal",
        ):  # as a crash leaves them, after a start of the machine
            shutil.copy(tmp_path / name, original)
    mount("--bind", str(original), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        with refused(codes.STORE_READ_ONLY) as caught:
            check(folder / "holdfast.db")
    finally:
        subprocess.run(["umount", str(folder)], check=True)

    assert f"its folder '{folder}' must be one that can be written to" in caught.value.message


async def test_a_store_can_be_backed_up_from_a_read_only_disk(read_only_disk: Path, tmp_path: Path) -> None:
    backup(read_only_disk / "holdfast.db", tmp_path / "copy.db")

    assert check(tmp_path / "copy.db").events == 1


@pytest.mark.parametrize("content", [b"not a database at all " * 300, b"SQLite format 3\0" + b"\xff" * 8000])
async def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(content)

    with refused(codes.STORE_CORRUPT) as caught:
        async with SqliteStore(path):
            pass

    assert f"'{path}' is damaged, or no database at all. Nothing was changed" in caught.value.message
    assert path.read_bytes() == content


async def test_a_damaged_page_is_found_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        async with store.appender(session_id) as stream:
            for number in range(5000):
                await stream.append(reply(number))
    _spoil(path, "events")
    before = path.read_bytes()

    report = check(path)

    assert report.problems
    async with SqliteStore(path) as store:
        with refused(codes.STORE_CORRUPT):
            await texts(store, session_id)
    with refused(codes.STORE_CORRUPT) as caught:
        backup(path, tmp_path / "copy.db")
    assert f"'{path}' is damaged" in caught.value.message  # not the copy
    assert path.read_bytes() == before
    assert [name for name in os.listdir(tmp_path) if "copy" in name] == []


async def test_a_copy_of_a_damaged_store_names_the_store_and_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    _spoil(path, "leases")  # which a copy is made without

    with refused(codes.STORE_CORRUPT) as caught:
        backup(path, tmp_path / "copy.db")

    assert caught.value.message.startswith(f"'{path}' is damaged")
    assert [name for name in os.listdir(tmp_path) if "copy" in name] == []


async def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()

    with refused(codes.STORE_UNREADABLE):
        async with SqliteStore(tmp_path / "holdfast.db"):
            pass


async def test_a_store_that_another_process_keeps_locked_is_told_as_busy(tmp_path: Path) -> None:
    def impatient(path: Path, synchronous: Synchronous) -> Database:
        db = connect(path, synchronous)
        db.execute("PRAGMA busy_timeout = 1")
        return db

    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=impatient) as store:
        session_id = await new_session(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with refused(codes.STORE_BUSY):
                await store.append(session_id, reply(1))
            other.execute("ROLLBACK")

        assert (await store.append(session_id, reply(1))).seq == 1


async def test_after_the_disk_failed_in_a_commit_nothing_more_is_written(tmp_path: Path) -> None:
    disk = Failing()
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=disk.open) as store:
        session_id = await new_session(store)
        disk.fails_with = sqlite3.SQLITE_IOERR_FSYNC
        with refused(codes.STORE_FAILED):
            await store.append(session_id, reply(1))
        disk.fails_with = 0

        with refused(codes.STORE_FAILED):
            await store.append(session_id, reply(2))


async def test_a_log_whose_index_cannot_grow_is_a_full_disk_and_not_a_failed_one(tmp_path: Path) -> None:
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        disk.fails_with = sqlite3.SQLITE_IOERR_SHMSIZE
        with refused(codes.STORE_FULL):
            await store.append(session_id, reply(1))
        disk.fails_with = 0

        assert (await store.append(session_id, reply(1))).seq == 1


@pytest.mark.promise("STO-04")
async def test_a_session_that_cannot_be_let_go_now_is_let_go_with_the_next_commit(tmp_path: Path) -> None:
    disk = Failing()
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path, connect=disk.open) as store, SqliteStore(path) as other:
        session_id = await new_session(store)
        await store.hold(session_id)
        disk.fails_with = sqlite3.SQLITE_FULL
        await store.let_go(session_id)
        with refused(codes.SESSION_HELD):
            await other.hold(session_id)
        disk.fails_with = 0

        await new_session(store)

        assert (await other.hold(session_id)).session_id == session_id


async def test_a_session_that_could_not_be_let_go_can_be_held_again(tmp_path: Path) -> None:
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        await store.hold(session_id)
        disk.fails_with = sqlite3.SQLITE_FULL
        await store.let_go(session_id)
        disk.fails_with = 0

        await store.hold(session_id)
        await new_session(store)

        lease = await store.read(lambda reads: reads.lease(session_id))
        assert lease is not None


async def test_a_folder_that_is_not_there_and_a_file_in_its_place_are_told(tmp_path: Path) -> None:
    path, file = tmp_path / "holdfast.db", tmp_path / "file"
    async with SqliteStore(path) as store:
        await new_session(store)
    file.write_text("precious")

    with refused(codes.STORE_UNREADABLE) as missing:
        backup(path, tmp_path / "nowhere" / "copy.db")
    with refused(codes.STORE_UNREADABLE) as blocked:
        backup(path, file / "copy.db")
    with refused(codes.STORE_UNREADABLE) as opened:
        async with SqliteStore(file / "holdfast.db"):
            pass

    assert missing.value.message == (
        f"There is no folder '{tmp_path}/nowhere'. Make it, or name another place."
    )
    assert [blocked.value.message, opened.value.message] == [
        f"'{file}/{name}' cannot be made: '{file}' is not a folder. Name another place."
        for name in ("copy.db", "holdfast.db")
    ]
    assert file.read_text() == "precious"


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
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


async def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    path.chmod(0o644)

    async with SqliteStore(path):
        pass

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_copy_is_taken_while_the_store_is_written_and_holds_nobodys_sessions(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        await store.hold(session_id)
        async with store.appender(session_id) as stream:
            for number in range(2000):
                await stream.append(reply(number))
                if number == 1000:
                    backup(path, copy)

    report = check(copy)
    assert (report.problems, report.sessions) == ((), 1)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    async with SqliteStore(copy) as restored:
        assert await texts(restored, session_id) == [f"piece {number} " for number in range(report.events)]
        await restored.hold(session_id)


async def test_a_copy_never_overwrites(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        await new_session(store)
    copy.write_bytes(b"precious")

    with refused(codes.FILE_EXISTS):
        backup(path, copy)

    assert copy.read_bytes() == b"precious"


async def test_vacuum_gives_back_the_space_of_deleted_sessions(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id, other = await new_session(store), await new_session(store)
        async with store.appender(session_id) as stream:
            for _ in range(50):
                await stream.append(BIG)
        await store.append(other, reply(1))
        await store.write(lambda tx: tx.delete(session_id))

        before, after = vacuum(path)

        assert after < before / 10
        assert await texts(store, other) == ["piece 1 "]


async def test_what_is_damaged_is_not_opened_to_be_vacuumed(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        for number in range(3):
            await store.append(session_id, reply(number))
    backup(path, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("DELETE FROM events WHERE seq = 2")
    before = copy.read_bytes()

    with refused(codes.STORE_CORRUPT) as caught:
        vacuum(copy)

    assert f"'{copy}' is damaged. Nothing was changed. The events of {session_id}" in caught.value.message
    assert copy.read_bytes() == before


async def test_a_gap_and_a_damaged_event_are_found(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        for number in range(5):
            await store.append(session_id, reply(number))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM events WHERE seq = 3")
        db.execute("UPDATE events SET body = x'7b' WHERE seq = 5")

    assert check(path).problems == (
        f"The events of {session_id} have gaps: 4 are there, and the last is number 5.",
        f"Event 5 of {session_id}: An event of the kind Replied is damaged: Input data was truncated.",
    )


async def test_there_is_nothing_to_look_after_where_no_store_is(tmp_path: Path) -> None:
    missing = tmp_path / "holdfast.db"
    for look in (check, vacuum):
        with refused(codes.STORE_UNREADABLE):
            look(missing)
    with refused(codes.STORE_UNREADABLE):
        backup(missing, tmp_path / "copy.db")

    assert os.listdir(tmp_path) == []


def _spoil(path: Path, table: str) -> None:
    """Overwrite a page in the middle of a table."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    shutil.copy(path, path.with_suffix(".tmp"))
    with path.with_suffix(".tmp").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xde\xad" * (size // 2))
    path.with_suffix(".tmp").replace(path)


async def test_a_failed_sync_stops_the_store_also_when_it_is_met_while_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.writer.RENEW_SECONDS", 0.05)
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        await store.hold(session_id)
        disk.fails_with = sqlite3.SQLITE_IOERR_FSYNC
        await asyncio.sleep(0.3)
        disk.fails_with = 0
        with refused(codes.STORE_FAILED):
            await store.append(session_id, reply(1))


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("table", ["audit", "events"])
async def test_a_database_that_does_not_keep_what_is_written_is_told(tmp_path: Path, table: str) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute(f"CREATE TRIGGER t BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END")
            other.commit()
        row = AuditRow(seq=1, body="{}", digest=b"x")
        with refused(codes.STORE_CORRUPT):
            if table == "audit":
                await store.write(lambda tx: tx.audit_append(row))
            else:
                await store.append(session_id, reply(1))
        with refused(codes.STORE_CORRUPT):
            if table == "audit":
                await store.write(lambda tx: tx.audit_append(row))
            else:
                await store.write(lambda tx: tx.append_many(session_id, [reply(1), reply(2)]))
