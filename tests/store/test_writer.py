"""The writer remembers the ends of sessions and of the audit, and extends the write-ahead log."""

import shutil
from pathlib import Path
from queue import SimpleQueue

import pytest

from holdfast.model import codes
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.work_item import WorkItem
from holdfast.store.sqlite.write_turns import MAX_BATCH_BYTES, SMALL_BYTES, WriteTurns
from holdfast.store.sqlite.write_tx import SqlTx
from holdfast.store.store import Tx
from holdfast.store.types import AuditRow, Hold
from tests.store.disks import small_disk
from tests.store.sessions import hold_session, raises_code, reply, texts

__all__ = ["small_disk"]
pytestmark = pytest.mark.anyio


def remember(tx: SqlTx) -> None:
    """In place of `SqlTx.on_begin`: forget nothing."""


def do_nothing(*_: object) -> None:
    pass


def next_row(tx: Tx) -> AuditRow:
    head = tx.audit_head()
    row = AuditRow(seq=1 if head is None else head.seq + 1, body='{"session_id":"s"}', digest=b"d")
    tx.audit_append(row)
    return row


async def test_events_and_audit_rows_of_another_process_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        hold = await hold_session(store)

        def write(tx: Tx) -> tuple[int, int]:
            return tx.append(hold, reply(1)).seq, next_row(tx).seq

        # The other process writes with the same hold, which only a test can do.
        written = [await each.write(write) for each in (store, store, other, store, other, other, store)]

        assert written == [(number, number) for number in range(1, 8)]


@pytest.mark.promise("SES-07")
@pytest.mark.parametrize("forgets", [True, False])
async def test_writer_whose_session_was_taken_over_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """The control does not look whether another process has written, and so trusts the epoch that it remembers."""
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        hold = await hold_session(store)
        await store.append(hold, reply(1))
        if not forgets:
            monkeypatch.setattr(SqlTx, "on_begin", remember)

        def take_over(tx: Tx) -> Hold:
            tx.release(hold)
            return tx.acquire(hold.session_id)

        await other.write(take_over)
        if forgets:
            with raises_code(codes.SESSION_HELD):
                await store.append(hold, reply(2))
        else:
            await store.append(hold, reply(2))
        stored = await texts(other, hold.session_id)

    assert stored == (["piece 1 "] if forgets else ["piece 1 ", "piece 2 "])


async def test_rolled_back_rows_are_forgotten(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        hold = await hold_session(store)

        def fail(tx: Tx) -> None:
            tx.append(hold, reply(0))
            next_row(tx)
            raise RuntimeError("rolled back")

        def write(tx: Tx) -> tuple[int, int]:
            return tx.append(hold, reply(1)).seq, next_row(tx).seq

        written: list[tuple[int, int]] = []
        for _ in range(3):
            with pytest.raises(RuntimeError, match="rolled back"):
                await store.write(fail)
            written.append(await store.write(write))

        assert written == [(1, 1), (2, 2), (3, 3)]


@pytest.fixture
def extended_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.writer._COMMITS_BEFORE_EXTENDING", 5)
    monkeypatch.setattr("holdfast.store.sqlite.database._MIN_FREE_BYTES", 0)


@pytest.mark.promise("STO-02")
async def test_extended_log_keeps_every_event_after_a_crash(tmp_path: Path, extended_early: None) -> None:
    path, crashed = tmp_path / "holdfast.db", tmp_path / "crashed"
    crashed.mkdir()
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        hold = await hold_session(store)
        for number in range(20):  # both processes extend the log, at different times
            await store.append(hold, reply(number))
            await other.write(next_row)
        size = (tmp_path / "holdfast.db-wal").stat().st_size
        for file in tmp_path.glob("holdfast.db*"):
            shutil.copy(file, crashed)
    async with SqliteStore(crashed / "holdfast.db") as store:
        rows = await store.read(lambda tx: len([*tx.audit_rows()]))
        stored = await texts(store, hold.session_id)

    assert size >= 2000 * 4096
    assert (stored, rows) == ([f"piece {number} " for number in range(20)], 20)


async def test_log_is_not_extended_on_a_small_disk(
    tmp_path: Path, extended_early: None, small_disk: Path
) -> None:
    async with SqliteStore(small_disk / "holdfast.db") as store:
        hold = await hold_session(store)
        for number in range(20):
            await store.append(hold, reply(number))  # extending fails, and is undone

        assert (small_disk / "holdfast.db-wal").stat().st_size < 1024 * 1024
        assert len(await texts(store, hold.session_id)) == 20


async def test_large_writes_of_many_owners_take_turns_and_small_ones_never_starve() -> None:
    """Six owners have many small writes, two have large ones, and one has a single small write."""
    queue: SimpleQueue[WorkItem | None] = SimpleQueue()
    turns = WriteTurns(queue)

    def add(owner: str, size: int) -> None:
        queue.put(WorkItem(do_nothing, do_nothing, quota_owner=owner, size=size))

    for number in range(6):
        for _ in range(200):
            add(f"busy {number}", SMALL_BYTES)
    for owner in ("large a", "large b"):
        for _ in range(5):
            add(owner, 2 * MAX_BATCH_BYTES)
    add("single", 100)
    batches: list[list[WorkItem]] = []
    while not turns.is_empty:
        batches.append(turns.take(0.0))

    with_single = [any(item.quota_owner == "single" for item in batch) for batch in batches]
    large = [item.quota_owner for batch in batches for item in batch if item.size > SMALL_BYTES]
    assert sum(map(len, batches)) == 6 * 200 + 10 + 1
    assert with_single.index(True) <= 2
    assert large == ["large a", "large b"] * 5
    assert max(sum(item.size for item in batch) for batch in batches) <= 3 * MAX_BATCH_BYTES + SMALL_BYTES
