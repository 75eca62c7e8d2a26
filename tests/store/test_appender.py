"""Appenders: events in order, a bounded window, and errors."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.event import Replied, Titled, ToolCalled
from holdfast.store.memory import MemoryStore
from holdfast.store.pending_event import PendingEvent
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, connect
from holdfast.store.store import Store, Tx
from tests.store.disks import FailingDisk
from tests.store.sessions import hold_session, raises_code, reply, texts

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    async with (
        SqliteStore(tmp_path / "holdfast.db") if request.param == "sqlite" else MemoryStore() as opened
    ):
        yield opened


async def test_events_keep_their_order_and_get_consecutive_numbers(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id

    async with store.appender(hold, window=16) as appender:
        pending = [await appender.append(reply(number)) for number in range(500)]

    assert [await event.wait_durable() for event in pending] == list(range(1, 501))
    assert await texts(store, session_id) == [f"piece {number} " for number in range(500)]


@pytest.mark.promise("STO-01")
async def test_pending_event_is_durable_only_when_another_connection_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        hold = await hold_session(store)
        session_id = hold.session_id
        appender = store.appender(hold)

        for number in range(50):
            event = await appender.append(reply(number))
            assert not event.is_durable
            seq = await event.wait_durable()
            stored = await other.read(lambda tx: tx.session(session_id))
            assert stored is not None
            assert stored.last_seq == seq == number + 1


@pytest.mark.promise("STO-01")
async def test_waiting_writes_share_commits_in_wal_mode_with_full_sync(tmp_path: Path) -> None:
    statements: list[str] = []
    async with SqliteStore(tmp_path / "holdfast.db", connect=_record_statements(statements)) as store:
        hold = await hold_session(store)
        settings = [
            store.write(lambda tx, name=name: _pragma(tx, name)) for name in ("journal_mode", "synchronous")
        ]
        assert await asyncio.gather(*settings) == ["wal", 2]
        statements.clear()

        await asyncio.gather(*(store.append(hold, reply(number)) for number in range(300)))

    assert 1 <= statements.count("COMMIT") <= 10


async def test_append_waits_while_the_window_is_full(store: Store) -> None:
    hold = await hold_session(store)
    appender = store.appender(hold, window=10)
    pending: list[PendingEvent] = []

    async def produce() -> None:
        for number in range(1000):
            pending.append(await appender.append(reply(number)))
            assert sum(not event.is_durable for event in pending) <= 10

    await produce()
    await appender.flush()

    assert [event.is_durable for event in pending] == [True] * 1000


async def test_waiting_tasks_append_in_order(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    appender = store.appender(hold, window=2)

    await asyncio.gather(*(appender.append(reply(number)) for number in range(50)))
    await appender.flush()

    assert await texts(store, session_id) == [f"piece {number} " for number in range(50)]


async def test_failed_event_fails_all_later_events_and_no_earlier_one(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    appender = store.appender(hold, window=100)

    pending = [
        await appender.append(Titled(title="\ud800") if number == 30 else reply(number))
        for number in range(90)
    ]
    with raises_code(codes.STREAM_BROKEN):
        await appender.flush()

    assert [await event.wait_durable() for event in pending[:30]] == list(range(1, 31))
    with raises_code(codes.UNSTORABLE):
        await pending[30].wait_durable()
    for event in [*pending[31:], await appender.append(reply(99))]:
        with raises_code(codes.STREAM_BROKEN) as caught:
            await event.wait_durable()
        assert session_id in caught.value.message
        assert "cannot be encoded" in caught.value.message
    assert await texts(store, session_id) == [f"piece {number} " for number in range(30)]


async def test_appender_accepts_events_after_a_reset_and_failed_events_stay_failed(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    appender = store.appender(hold)

    await appender.append(reply(1))
    bad = await appender.append(Titled(title="\ud800"))
    late = await appender.append(reply(2))
    await appender.wait_settled()
    was_broken = appender.error
    appender.reset()
    again = await appender.append(reply(3))

    assert was_broken is not None
    assert was_broken.code is codes.STREAM_BROKEN
    assert (bad.has_failed, late.has_failed, appender.error) == (True, True, None)
    assert await again.wait_durable() == 2
    assert await texts(store, session_id) == ["piece 1 ", "piece 3 "]


async def test_full_disk_error_is_raised_for_every_waiting_event(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        hold = await hold_session(store)
        appender = store.appender(hold)
        disk.fails_with = sqlite3.SQLITE_FULL

        pending = [await appender.append(reply(number)) for number in range(3)]

        for event in pending:
            with raises_code(codes.STORE_FULL) as caught:
                await event.wait_durable()
            assert f"No space is left to write '{tmp_path / 'holdfast.db'}'." in caught.value.message
        disk.fails_with = 0


async def test_retry_with_the_same_keys_adds_only_missing_events(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    async with store.appender(hold) as appender:
        for number in range(60):
            await appender.append(reply(number), key=f"reply {number}")

    async with store.appender(hold) as again:
        pending = [await again.append(reply(number), key=f"reply {number}") for number in range(40, 80)]

    assert [await event.wait_durable() for event in pending] == list(range(41, 81))
    assert await texts(store, session_id) == [f"piece {number} " for number in range(80)]


async def test_on_append_runs_once_and_not_on_a_retry(store: Store) -> None:
    hold = await hold_session(store)
    ran: list[str] = []

    def on_append(tx: Tx) -> None:
        ran.append("ran")

    for _ in range(3):
        async with store.appender(hold) as appender:
            await appender.append(reply(1), key="once", on_append=on_append)

    assert ran == ["ran"]


async def test_event_is_not_stored_if_on_append_fails(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    appender = store.appender(hold)

    def fail(tx: Tx) -> None:
        raise RuntimeError("no audit, no event")

    event = await appender.append(reply(1), on_append=fail)

    with pytest.raises(RuntimeError, match="no audit"):
        await event.wait_durable()
    assert await texts(store, session_id) == []


async def test_cancelled_waiter_does_not_cancel_other_waiters(store: Store) -> None:
    hold = await hold_session(store)
    appender = store.appender(hold)
    event = await appender.append(reply(1))
    impatient = asyncio.ensure_future(event.wait_durable())
    patient = asyncio.ensure_future(event.wait_durable())

    impatient.cancel()

    assert await patient == 1


@pytest.mark.promise("AUD-03")
async def test_appender_masks_its_secrets(store: Store) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    call = ToolCalled(
        call_id="c", server="s", tool="t", arguments={"url": "https://x/?k=hunter22", "api_key": "other"}
    )

    async with store.appender(hold, mask=Mask.of(["hunter22"])) as appender:
        await appender.append(Replied(message_id="m", text="it is hunter22!"))
        await appender.append(call)

    first, second = [stored.event async for stored in store.events(session_id)]
    assert first == Replied(message_id="m", text=f"it is {MASKED}!")
    assert isinstance(second, ToolCalled)
    assert second.arguments == {"url": f"https://x/?k={MASKED}", "api_key": MASKED}


async def test_window_must_hold_at_least_one_event(store: Store) -> None:
    with raises_code(codes.BAD_ARGUMENT):
        store.appender(await hold_session(store), window=0)


def _pragma(tx: Tx, name: str) -> object:
    return tx._db.execute(f"PRAGMA {name}").fetchone()[0]  # type: ignore[attr-defined]


def _record_statements(statements: list[str]):
    """A real connection that records its statements."""

    class RecordingConnection:
        def __init__(self, db: Database) -> None:
            self._db = db
            self.close = db.close

        @property
        def in_transaction(self) -> bool:
            return self._db.in_transaction

        def execute(self, sql: str, parameters: object = (), /):
            statements.append(sql)
            return self._db.execute(sql, parameters)  # type: ignore[arg-type]

    def open_it(path: Path) -> Database:
        return RecordingConnection(connect(path))

    return open_it


async def test_bad_event_in_a_batch_without_keys_fails_only_itself_and_later_events(
    store: Store,
) -> None:
    hold = await hold_session(store)
    session_id = hold.session_id
    appender = store.appender(hold, window=100)

    pending = [await appender.append(reply(number)) for number in range(20)]
    bad = await appender.append(Replied(message_id="m", text="\ud800"))
    late = await appender.append(reply(21))
    outcomes = await asyncio.gather(*(event.wait_durable() for event in pending))

    assert outcomes == list(range(1, 21))
    with raises_code(codes.UNSTORABLE):
        await bad.wait_durable()
    with raises_code(codes.STREAM_BROKEN):
        await late.wait_durable()
    assert await texts(store, session_id) == [f"piece {number} " for number in range(20)]


async def test_event_fails_if_the_event_it_depends_on_failed(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        hold = await hold_session(store)
        session_id = hold.session_id
        appender = store.appender(hold)
        disk.fails_with = sqlite3.SQLITE_FULL
        first = await appender.append(reply(1))
        assert not await first.wait_settled()
        disk.fails_with = 0
        appender.reset()
        after = await appender.append(reply(2), depends_on=first)
        alone = await appender.append(reply(3))

        assert (await after.wait_settled(), await alone.wait_settled()) == (False, True)
        assert await texts(store, session_id) == ["piece 3 "]
