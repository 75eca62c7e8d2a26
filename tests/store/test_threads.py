"""The store's threads: they end with the store, and do not block each other."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.store.open_store import open_read_only
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, connect
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.store import ReadTx, Tx
from holdfast.store.types import AppendResult
from tests.store.sessions import hold_session, raises_code, reply, texts

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("holdfast")]
    for thread in ours:
        thread.join(10)
    assert [thread.name for thread in ours if thread.is_alive()] == []


async def test_close_finishes_pending_writes(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        writes = [asyncio.ensure_future(store.append(hold, reply(number))) for number in range(100)]
        await asyncio.sleep(0)

    assert [(await write).seq for write in writes] == list(range(1, 101))
    async with SqliteStore(path) as store:
        assert len(await texts(store, session_id)) == 100


async def test_reads_do_not_wait_for_a_slow_write(tmp_path: Path) -> None:
    started, proceed = threading.Event(), threading.Event()

    def slow(tx: Tx) -> AppendResult:
        appended = tx.append(hold, reply(1))
        started.set()
        proceed.wait(30)
        return appended

    async with SqliteStore(tmp_path / "holdfast.db") as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        writing = asyncio.ensure_future(store.write(slow))
        await asyncio.to_thread(started.wait, 30)

        assert await texts(store, session_id) == []

        proceed.set()
        assert (await writing).seq == 1
        assert await texts(store, session_id) == ["piece 1 "]


async def test_closing_a_store_does_not_replace_the_error_of_a_read(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path):
        pass

    def fail(tx: ReadTx) -> None:
        assert isinstance(tx, SqlReadTx)
        rows = tx._db.execute("SELECT name FROM sqlite_schema")  # the error keeps this statement active
        raise ZeroDivisionError(str(next(iter(rows))))

    with pytest.raises(ZeroDivisionError):
        async with open_read_only(path) as store:
            await store.read(fail)


async def test_read_that_closing_interrupts_says_that_the_store_was_closed(tmp_path: Path) -> None:
    path, started = tmp_path / "holdfast.db", threading.Event()
    async with SqliteStore(path):
        pass

    def read_forever(tx: ReadTx) -> None:
        assert isinstance(tx, SqlReadTx)
        started.set()
        numbers = "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers)"
        tx._db.execute(f"{numbers} SELECT max(n) FROM numbers").fetchone()

    async with open_read_only(path) as store:
        reading = asyncio.ensure_future(store.read(read_forever))
        await asyncio.to_thread(started.wait, 30)

    with raises_code(codes.STORE_CLOSED):
        await reading


async def test_cancelling_the_caller_does_not_stop_the_write(tmp_path: Path) -> None:
    started, proceed = threading.Event(), threading.Event()

    def slow(tx: Tx) -> AppendResult:
        started.set()
        proceed.wait(30)
        return tx.append(hold, reply(1))

    async with SqliteStore(tmp_path / "holdfast.db") as store:
        hold = await hold_session(store)
        writing = asyncio.ensure_future(store.write(slow))
        await asyncio.to_thread(started.wait, 30)

        writing.cancel()
        proceed.set()

        assert (await store.append(hold, reply(2))).seq == 2


async def test_failed_open_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()

    with raises_code(codes.STORE_UNREADABLE):
        async with SqliteStore(tmp_path / "holdfast.db"):
            pass


async def test_cancelled_open_leaves_no_thread(tmp_path: Path) -> None:
    opening, proceed, closed = threading.Event(), threading.Event(), threading.Event()

    class NotifyingConnection:
        """A real connection that sets an event when it is closed."""

        def __init__(self, db: Database) -> None:
            self._db, self.execute = db, db.execute

        @property
        def in_transaction(self) -> bool:
            return self._db.in_transaction

        def close(self) -> None:
            self._db.close()
            closed.set()

    def slow(path: Path) -> Database:
        opening.set()
        proceed.wait(30)
        return NotifyingConnection(connect(path))

    store = SqliteStore(tmp_path / "holdfast.db", connect=slow)
    entering = asyncio.ensure_future(store.__aenter__())
    await asyncio.to_thread(opening.wait, 30)

    entering.cancel()
    proceed.set()

    assert await asyncio.to_thread(closed.wait, 30)
    with raises_code(codes.STORE_CLOSED):
        await store.write(lambda tx: tx.index_messages())
