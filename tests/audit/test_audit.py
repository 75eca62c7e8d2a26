"""The audit of a store: records in the same commit as their event, chained and anchored."""

import asyncio
import errno
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.audit.chain import Head
from holdfast.audit.record import decode_record
from holdfast.model import codes
from holdfast.model.event import Outcome, Titled, ToolEnded
from holdfast.store.maintenance import backup
from holdfast.store.memory import MemoryStore
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.store import Store, Tx
from tests.audit.records import record
from tests.store.sessions import hold_session, raises_code

pytestmark = pytest.mark.anyio
ENDED = ToolEnded(call_id="call_1", outcome=Outcome.COMPLETED)


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    async with (
        SqliteStore(tmp_path / "holdfast.db") if request.param == "sqlite" else MemoryStore() as opened
    ):
        yield opened


@pytest.mark.promise("AUD-01")
async def test_record_and_event_are_stored_together_or_not_at_all(store: Store) -> None:
    hold = await hold_session(store)
    async with Audit(store) as audit:

        def fail_after(tx: Tx) -> None:
            tx.append(hold, ENDED)
            audit.append(tx, record(1))
            raise RuntimeError("after both")

        with pytest.raises(RuntimeError, match="after both"):
            await store.write(fail_after)
        assert await _stored(store) == ([], [])

        async with store.appender(hold) as stream:
            pending = await stream.append(ENDED, on_append=audit.append_callback(record(2)))
            await pending.wait_durable()

        assert await _stored(store) == ([ENDED], [record(2)])


@pytest.mark.promise("AUD-01")
async def test_retried_event_leaves_exactly_one_record(store: Store) -> None:
    hold = await hold_session(store)
    async with Audit(store) as audit:
        for _ in range(3):
            async with store.appender(hold) as stream:
                await stream.append(ENDED, key="call_1:ended", on_append=audit.append_callback(record(1)))

    assert await _stored(store) == ([ENDED], [record(1)])


@pytest.mark.promise("AUD-02")
async def test_chain_of_many_records_verifies(store: Store) -> None:
    hold = await hold_session(store)
    async with Audit(store) as audit:
        async with store.appender(hold) as stream:
            for number in range(300):
                await stream.append(
                    Titled(title=str(number)), on_append=audit.append_callback(record(number))
                )
        assert await audit.write(record(300)) == 301

        verdict = await audit.verify()

        assert (verdict.seq, verdict.is_intact) == (301, True)


async def test_backup_does_not_overwrite_an_existing_anchor(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store, Audit(store) as audit:
        await audit.write(record(1))
    FileAnchor.for_database(copy).path.write_text("precious")

    with raises_code(codes.FILE_EXISTS) as caught:
        backup(path, copy)

    assert caught.value.message.startswith(f"'{copy}-anchor' already exists")
    assert (copy.exists(), FileAnchor.for_database(copy).path.read_text()) == (False, "precious")


@pytest.mark.promise("AUD-02")
async def test_backup_is_removed_if_its_anchor_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    copies = tmp_path / "copies"
    copies.mkdir()
    async with SqliteStore(path) as store, Audit(store) as audit:
        await audit.write(record())

        with raises_code(codes.STORE_UNREADABLE):
            backup(path, copies / ("x" * 229))  # too long for a suffix

    assert os.listdir(copies) == []


@pytest.mark.promise("AUD-02")
async def test_two_hosts_on_one_file_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.for_database(path)
    async with (
        SqliteStore(path) as first,
        SqliteStore(path) as second,
        Audit(first) as one,
        Audit(second) as two,
    ):
        for number in range(40):
            await (one if number % 2 else two).write(record(number))

        verdict = await one.verify()

        assert (verdict.is_intact, verdict.seq) == (True, 40)
    assert (anchor.read() or Head(0, b"")).seq == 40


async def test_anchor_is_written_before_the_first_record_and_on_close(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.for_database(path)
    async with SqliteStore(path) as store:
        async with Audit(store, anchor_seconds=3600) as audit:
            first = anchor.read()
            for number in range(10):
                await audit.write(record(number))
            assert anchor.read() == first
            assert (await audit.verify()).is_intact
        ended = anchor.read()
        head = await store.read(lambda tx: tx.audit_head())

    assert first is not None
    assert head is not None
    assert (first.seq, ended) == (0, Head(10, head.digest))
    assert stat.S_IMODE(anchor.path.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if ".new" in name] == []


async def test_anchor_is_updated_without_further_writes(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.for_database(path)
    async with SqliteStore(path) as store, Audit(store, anchor_seconds=0.01) as audit:
        for number in range(10):
            await audit.write(record(number))

        while (head := anchor.read()) is None or head.seq < 10:
            await audit.verify()


class FailingAnchor(FileAnchor):
    """An anchor whose next reads or writes fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failing_reads = self.failing_writes = 0

    def read(self) -> Head | None:
        if self.failing_reads:
            self.failing_reads -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().read()

    def write(self, head: Head) -> None:
        if self.failing_writes:
            self.failing_writes -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(head)


class StoreWithAnchor(SqliteStore):
    """A store with another anchor than its own."""

    def __init__(self, path: Path, anchor: FileAnchor) -> None:
        super().__init__(path)
        self._anchor = anchor


async def wait_until_anchored(anchor: FileAnchor, seq: int) -> None:
    async with asyncio.timeout(10):
        while (head := anchor.read()) is None or head.seq != seq:
            await asyncio.sleep(0.01)


@pytest.mark.promise("AUD-02")
@pytest.mark.parametrize("attribute", ["failing_reads", "failing_writes"])
async def test_anchor_recovers_from_temporary_errors_without_further_writes(
    tmp_path: Path, attribute: str
) -> None:
    anchor = FailingAnchor.for_database(tmp_path / "holdfast.db")
    async with (
        StoreWithAnchor(tmp_path / "holdfast.db", anchor) as store,
        Audit(store, anchor_seconds=0.05) as audit,
    ):
        setattr(anchor, attribute, 3)
        await audit.write(record(1))
        async with asyncio.timeout(10):
            while getattr(anchor, attribute):
                await asyncio.sleep(0.01)

        await wait_until_anchored(anchor, 1)


@pytest.mark.promise("AUD-02")
async def test_anchor_moved_back_by_another_host_is_corrected(tmp_path: Path) -> None:
    anchor = FileAnchor.for_database(tmp_path / "holdfast.db")
    async with (
        SqliteStore(tmp_path / "holdfast.db") as store,
        Audit(store, anchor_seconds=0.2) as audit,
    ):
        await audit.write(record(1))
        await wait_until_anchored(anchor, 1)
        earlier = anchor.read()
        await audit.write(record(2))
        await wait_until_anchored(anchor, 2)
        assert earlier is not None
        anchor.write(earlier)  # like another process that read the head earlier and writes it later

        await wait_until_anchored(anchor, 2)


@pytest.mark.promise("AUD-02")
async def test_records_of_a_dead_host_are_anchored_by_another_host(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.for_database(path)
    async with (
        SqliteStore(path) as dead,
        SqliteStore(path) as store,
        Audit(store, anchor_seconds=0.05),
    ):
        hold = await hold_session(store)
        await Audit(dead).write(record(1))  # not entered, so it does not update the anchor
        await asyncio.sleep(0.1)
        await store.append(hold, Titled(title="later"))

        await wait_until_anchored(anchor, 1)


@pytest.mark.promise("AUD-02")
def test_two_hosts_in_one_process_can_write_the_same_anchor(tmp_path: Path) -> None:
    anchor = FileAnchor.for_database(tmp_path / "holdfast.db")
    anchor.write(Head(1, b"\0" * 32))

    def write(of: int) -> list[Head | None]:
        own = FileAnchor(anchor.path)
        heads = [Head(of, bytes([of]) * 32) for _ in range(300)]
        return [own.read() for head in heads if own.write(head) is None]

    with ThreadPoolExecutor() as hosts:
        read = [head for seen in hosts.map(write, (1, 2)) for head in seen]

    assert {head and head.seq for head in read} <= {1, 2}
    assert os.listdir(tmp_path) == ["holdfast.db-anchor"]


def test_only_old_temporary_anchor_files_are_removed(tmp_path: Path) -> None:
    anchor = FileAnchor.for_database(tmp_path / "holdfast.db")
    left, fresh = (tmp_path / f"holdfast.db-anchor.{name}.new" for name in ("left", "fresh"))
    left.touch()
    fresh.touch()
    os.utime(left, (0, 0))

    anchor.write(Head(1, b"\0" * 32))

    assert sorted(os.listdir(tmp_path)) == ["holdfast.db-anchor", fresh.name]


@pytest.mark.promise("AUD-02")
async def test_records_added_after_a_truncation_do_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        async with Audit(store) as audit:
            for number in range(10):
                await audit.write(record(number))
        with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
            attacker.execute("DELETE FROM audit WHERE seq > 7")

        async with Audit(store, anchor_seconds=0) as audit:
            for number in range(20):
                await audit.write(record(number))
            verdict = await audit.verify()

    assert (verdict.is_intact, verdict.seq, verdict.anchored_seq) == (False, 10, 10)


async def _stored(store: Store):
    records = await store.read(lambda tx: [decode_record(row.body) for row in tx.audit_rows()])
    sessions = await store.read(lambda tx: tx.sessions(SessionQuery(visibility=ALL_SESSIONS)))
    events = [stored.event async for stored in store.events(sessions.items[0].context.session_id)]
    return events, records
