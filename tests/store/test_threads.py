"""The store's threads: they end with it, and nobody waits for them without need."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.store.database import Database, Synchronous, connect
from holdfast.store.rows import Appended
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Tx
from tests.store.sessions import new_session, refused, reply, texts

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("holdfast")]
    for thread in ours:
        thread.join(10)
    assert [thread.name for thread in ours if thread.is_alive()] == []


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        writes = [asyncio.ensure_future(store.append(session_id, reply(number))) for number in range(100)]
        await asyncio.sleep(0)

    assert [(await write).seq for write in writes] == list(range(1, 101))
    async with SqliteStore(path) as store:
        assert len(await texts(store, session_id)) == 100


async def test_reading_goes_on_while_a_write_takes_its_time(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> Appended:
        appended = tx.append(session_id, reply(1))
        begun.set()
        go_on.wait(30)
        return appended

    async with SqliteStore(tmp_path / "holdfast.db") as store:
        session_id = await new_session(store)
        writing = asyncio.ensure_future(store.write(slow))
        await asyncio.to_thread(begun.wait, 30)

        assert await texts(store, session_id) == []

        go_on.set()
        assert await writing == Appended(1, new=True)
        assert await texts(store, session_id) == ["piece 1 "]


async def test_a_caller_that_gives_up_does_not_stop_the_write_or_the_store(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> Appended:
        begun.set()
        go_on.wait(30)
        return tx.append(session_id, reply(1))

    async with SqliteStore(tmp_path / "holdfast.db") as store:
        session_id = await new_session(store)
        writing = asyncio.ensure_future(store.write(slow))
        await asyncio.to_thread(begun.wait, 30)

        writing.cancel()
        go_on.set()

        assert (await store.append(session_id, reply(2))).seq == 2


async def test_a_store_that_could_not_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()

    with refused(codes.STORE_UNREADABLE):
        async with SqliteStore(tmp_path / "holdfast.db"):
            pass


async def test_an_opening_that_was_cancelled_leaves_no_thread(tmp_path: Path) -> None:
    opening, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Told:
        """A real connection that says when it is closed."""

        def __init__(self, db: Database) -> None:
            self._db, self.execute = db, db.execute

        @property
        def in_transaction(self) -> bool:
            return self._db.in_transaction

        def close(self) -> None:
            self._db.close()
            closed.set()

    def slow(path: Path, synchronous: Synchronous) -> Database:
        opening.set()
        go_on.wait(30)
        return Told(connect(path, synchronous))

    store = SqliteStore(tmp_path / "holdfast.db", connect=slow)
    entering = asyncio.ensure_future(store.__aenter__())
    await asyncio.to_thread(opening.wait, 30)

    entering.cancel()
    go_on.set()

    assert await asyncio.to_thread(closed.wait, 30)
    with refused(codes.STORE_CLOSED):
        await store.write(lambda tx: tx.index())
