"""The audit of a store: in the same commit as the event, chained, and anchored outside of the table."""

import asyncio
import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.audit.anchor import FileAnchor, MemoryAnchor
from holdfast.audit.audit import Audit
from holdfast.audit.backup import backup
from holdfast.audit.chain import Head
from holdfast.audit.record import read_record
from holdfast.model import codes
from holdfast.model.event import Outcome, Titled, ToolEnded
from holdfast.store.memory import MemoryStore
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from tests.audit.records import record
from tests.store.sessions import new_session, refused

pytestmark = pytest.mark.anyio
ENDED = ToolEnded(call_id="call_1", outcome=Outcome.COMPLETED)


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    async with (
        SqliteStore(tmp_path / "holdfast.db") if request.param == "sqlite" else MemoryStore() as opened
    ):
        yield opened


@pytest.mark.promise("AUD-01")
async def test_a_record_is_durable_with_its_event_or_not_at_all(store: Store) -> None:
    session_id = await new_session(store)
    async with Audit(store, MemoryAnchor()) as audit:

        def fail_after(tx: Tx) -> None:
            tx.append(session_id, ENDED)
            audit.add(tx, record(1))
            raise RuntimeError("after both")

        with pytest.raises(RuntimeError, match="after both"):
            await store.write(fail_after)
        assert await _kept(store) == ([], [])

        async with store.appender(session_id) as stream:
            ticket = await stream.append(ENDED, also=audit.adds(record(2)))
            await ticket.durable()

        assert await _kept(store) == ([ENDED], [record(2)])


@pytest.mark.promise("AUD-01")
async def test_a_retried_event_leaves_exactly_one_record(store: Store) -> None:
    session_id = await new_session(store)
    async with Audit(store, MemoryAnchor()) as audit:
        for _ in range(3):
            async with store.appender(session_id) as stream:
                await stream.append(ENDED, key="call_1:ended", also=audit.adds(record(1)))

    assert await _kept(store) == ([ENDED], [record(1)])


@pytest.mark.promise("AUD-02")
async def test_a_chain_of_many_records_verifies(store: Store) -> None:
    session_id = await new_session(store)
    async with Audit(store, MemoryAnchor()) as audit:
        async with store.appender(session_id) as stream:
            for number in range(300):
                await stream.append(Titled(title=str(number)), also=audit.adds(record(number)))
        assert await audit.record(record(300)) == 301

        verdict = await audit.verify()

        assert (verdict.seq, verdict.good) == (301, True)


async def test_a_copy_does_not_replace_the_anchor_of_another(tmp_path: Path) -> None:
    path, copy = tmp_path / "holdfast.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store, Audit(store, FileAnchor.beside(path)) as audit:
        await audit.record(record(1))
    FileAnchor.beside(copy).path.write_text("precious")

    with refused(codes.FILE_EXISTS) as caught:
        backup(path, copy)

    assert caught.value.message.startswith(f"'{copy}-anchor' exists already")
    assert (copy.exists(), FileAnchor.beside(copy).path.read_text()) == (False, "precious")


@pytest.mark.promise("AUD-02")
async def test_a_copy_whose_anchor_cannot_be_written_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    copies = tmp_path / "copies"
    copies.mkdir()
    async with SqliteStore(path) as store, Audit(store, FileAnchor.beside(path)) as audit:
        await audit.record(record())

        with refused(codes.STORE_UNREADABLE):
            backup(path, copies / ("x" * 229))  # a name to which little can be added

    assert os.listdir(copies) == []


@pytest.mark.promise("AUD-02")
async def test_two_hosts_on_one_file_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.beside(path)
    async with (
        SqliteStore(path) as first,
        SqliteStore(path) as second,
        Audit(first, anchor) as one,
        Audit(second, FileAnchor.beside(path)) as two,
    ):
        for number in range(40):
            await (one if number % 2 else two).record(record(number))

        verdict = await one.verify()

        assert (verdict.good, verdict.seq) == (True, 40)
    assert (anchor.read() or Head(0, b"")).seq == 40


async def test_the_anchor_is_written_before_the_first_record_and_after_the_last(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.beside(path)
    async with SqliteStore(path) as store:
        async with Audit(store, anchor, anchor_seconds=3600) as audit:
            begun = anchor.read()
            for number in range(10):
                await audit.record(record(number))
            assert anchor.read() == begun
            assert (await audit.verify()).good
        ended = anchor.read()
        head = await store.read(lambda reads: reads.audit_head())

    assert begun is not None
    assert head is not None
    assert (begun.seq, ended) == (0, Head(10, head.digest))
    assert stat.S_IMODE(anchor.path.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if ".new" in name] == []


async def test_the_anchor_follows_within_its_time_though_nothing_more_is_written(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.beside(path)
    async with SqliteStore(path) as store, Audit(store, anchor, anchor_seconds=0.01) as audit:
        for number in range(10):
            await audit.record(record(number))

        while (head := anchor.read()) is None or head.seq < 10:
            await audit.verify()


class Trouble(FileAnchor):
    """Fails so many times to be read, or to be written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.unreadable = self.unwritable = 0

    def read(self) -> Head | None:
        if self.unreadable:
            self.unreadable -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().read()

    def write(self, head: Head) -> None:
        if self.unwritable:
            self.unwritable -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(head)


async def anchored(anchor: FileAnchor, seq: int) -> None:
    async with asyncio.timeout(10):
        while (head := anchor.read()) is None or head.seq != seq:
            await asyncio.sleep(0.01)


@pytest.mark.promise("AUD-02")
@pytest.mark.parametrize("trouble", ["unreadable", "unwritable"])
async def test_an_anchor_that_fails_for_a_while_follows_though_nothing_more_is_written(
    tmp_path: Path, trouble: str
) -> None:
    anchor = Trouble(tmp_path / "anchor")
    async with (
        SqliteStore(tmp_path / "holdfast.db") as store,
        Audit(store, anchor, anchor_seconds=0.05) as audit,
    ):
        setattr(anchor, trouble, 3)
        await audit.record(record(1))
        async with asyncio.timeout(10):
            while getattr(anchor, trouble):
                await asyncio.sleep(0.01)

        await anchored(anchor, 1)


@pytest.mark.promise("AUD-02")
async def test_an_anchor_that_a_slow_neighbour_put_back_does_not_stay_there(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor")
    async with (
        SqliteStore(tmp_path / "holdfast.db") as store,
        Audit(store, anchor, anchor_seconds=0.2) as audit,
    ):
        await audit.record(record(1))
        await anchored(anchor, 1)
        earlier = anchor.read()
        await audit.record(record(2))
        await anchored(anchor, 2)
        assert earlier is not None
        anchor.write(earlier)  # as one does who looked before us and writes after us

        await anchored(anchor, 2)


@pytest.mark.promise("AUD-02")
async def test_the_records_of_a_neighbour_that_died_are_anchored_by_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    anchor = FileAnchor.beside(path)
    async with (
        SqliteStore(path) as dead,
        SqliteStore(path) as store,
        Audit(store, anchor, anchor_seconds=0.05),
    ):
        session_id = await new_session(store)
        await Audit(dead, anchor).record(record(1))  # nobody looks after its anchor
        await asyncio.sleep(0.1)
        await store.append(session_id, Titled(title="later"))

        await anchored(anchor, 1)


@pytest.mark.promise("AUD-02")
def test_two_hosts_in_one_process_do_not_spoil_each_others_anchor(tmp_path: Path) -> None:
    anchor = FileAnchor.beside(tmp_path / "holdfast.db")
    anchor.write(Head(1, b"\0" * 32))

    def write(of: int) -> list[Head | None]:
        own = FileAnchor(anchor.path)
        heads = [Head(of, bytes([of]) * 32) for _ in range(300)]
        return [own.read() for head in heads if own.write(head) is None]

    with ThreadPoolExecutor() as hosts:
        read = [head for seen in hosts.map(write, (1, 2)) for head in seen]

    assert {head and head.seq for head in read} <= {1, 2}
    assert os.listdir(tmp_path) == ["holdfast.db-anchor"]


def test_what_a_crash_left_of_an_anchor_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    anchor = FileAnchor.beside(tmp_path / "holdfast.db")
    left, fresh = (tmp_path / f"holdfast.db-anchor.{name}.new" for name in ("left", "fresh"))
    left.touch()
    fresh.touch()
    os.utime(left, (0, 0))

    anchor.write(Head(1, b"\0" * 32))

    assert sorted(os.listdir(tmp_path)) == ["holdfast.db-anchor", fresh.name]


@pytest.mark.promise("AUD-02")
async def test_going_on_after_a_cut_does_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        async with Audit(store, FileAnchor.beside(path)) as audit:
            for number in range(10):
                await audit.record(record(number))
        await store.write(lambda tx: tx._db.execute("DELETE FROM audit WHERE seq > 7"))  # type: ignore[attr-defined]

        async with Audit(store, FileAnchor.beside(path), anchor_seconds=0) as audit:
            for number in range(20):
                await audit.record(record(number))
            verdict = await audit.verify()

    assert (verdict.good, verdict.seq, verdict.anchored) == (False, 10, 10)


async def _kept(store: Store):
    reads = await store.read(lambda reads: [read_record(row.body) for row in reads.audit_rows()])
    sessions = await store.read(lambda reads: reads.sessions(SessionQuery(reach=OPERATOR)))
    events = [stored.event async for stored in store.events(sessions.items[0].context.session_id)]
    return events, reads
