"""A stream of events: in order, bounded, and clear about what failed."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Replied, Titled, ToolCalled
from holdfast.model.mask import MASKED, Mask
from holdfast.store.appender import Ticket
from holdfast.store.database import Database, Synchronous, connect
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from tests.store.disks import Failing
from tests.store.sessions import new_session, refused, reply, texts

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    async with (
        SqliteStore(tmp_path / "holdfast.db") if request.param == "sqlite" else MemoryStore() as opened
    ):
        yield opened


async def test_a_stream_keeps_its_order_and_tells_each_place(store: Store) -> None:
    session_id = await new_session(store)

    async with store.appender(session_id, window=16) as stream:
        tickets = [await stream.append(reply(number)) for number in range(500)]

    assert [await ticket.durable() for ticket in tickets] == list(range(1, 501))
    assert await texts(store, session_id) == [f"piece {number} " for number in range(500)]


@pytest.mark.promise("STO-01")
async def test_a_ticket_is_durable_only_when_another_connection_can_read_its_event(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        session_id = await new_session(store)
        stream = store.appender(session_id)

        for number in range(50):
            ticket = await stream.append(reply(number))
            assert not ticket.is_durable
            seq = await ticket.durable()
            stored = await other.read(lambda reads: reads.session(session_id))
            assert stored is not None
            assert stored.last_seq == seq == number + 1


@pytest.mark.promise("STO-01")
async def test_many_waiting_writes_share_one_commit_in_wal_mode_at_full_durability(tmp_path: Path) -> None:
    said: list[str] = []
    async with SqliteStore(tmp_path / "holdfast.db", connect=_overheard(said)) as store:
        session_id = await new_session(store)
        settings = [
            store.write(lambda tx, name=name: _pragma(tx, name)) for name in ("journal_mode", "synchronous")
        ]
        assert await asyncio.gather(*settings) == ["wal", 2]
        said.clear()

        await asyncio.gather(*(store.append(session_id, reply(number)) for number in range(300)))

    assert 1 <= said.count("COMMIT") <= 10


async def test_a_full_window_makes_the_writer_of_events_wait(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id, window=10)
    tickets: list[Ticket] = []

    async def produce() -> None:
        for number in range(1000):
            tickets.append(await stream.append(reply(number)))
            assert sum(not ticket.is_durable for ticket in tickets) <= 10

    await produce()
    await stream.flush()

    assert [ticket.is_durable for ticket in tickets] == [True] * 1000


async def test_tasks_that_wait_for_room_get_it_in_their_order(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id, window=2)

    await asyncio.gather(*(stream.append(reply(number)) for number in range(50)))
    await stream.flush()

    assert await texts(store, session_id) == [f"piece {number} " for number in range(50)]


async def test_one_failing_event_fails_itself_and_all_after_it_and_none_before(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id, window=100)

    tickets = [
        await stream.append(Titled(title="\ud800") if number == 30 else reply(number)) for number in range(90)
    ]
    with refused(codes.STREAM_BROKEN):
        await stream.flush()

    assert [await ticket.durable() for ticket in tickets[:30]] == list(range(1, 31))
    with refused(codes.UNSTORABLE):
        await tickets[30].durable()
    for ticket in [*tickets[31:], await stream.append(reply(99))]:
        with refused(codes.STREAM_BROKEN) as caught:
            await ticket.durable()
        assert session_id in caught.value.message
        assert "cannot be written down" in caught.value.message
    assert await texts(store, session_id) == [f"piece {number} " for number in range(30)]


async def test_a_mended_stream_takes_events_again_and_what_failed_stays_failed(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id)

    await stream.append(reply(1))
    bad = await stream.append(Titled(title="\ud800"))
    late = await stream.append(reply(2))
    await stream.settled()
    was_broken = stream.broken
    stream.mend()
    again = await stream.append(reply(3))

    assert was_broken is not None
    assert was_broken.code is codes.STREAM_BROKEN
    assert (bad.has_failed, late.has_failed, stream.broken) == (True, True, None)
    assert await again.durable() == 2
    assert await texts(store, session_id) == ["piece 1 ", "piece 3 "]


async def test_a_full_disk_is_told_by_its_name_to_all_that_wait_behind_the_first(tmp_path: Path) -> None:
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        stream = store.appender(session_id)
        disk.fails_with = sqlite3.SQLITE_FULL

        tickets = [await stream.append(reply(number)) for number in range(3)]

        for ticket in tickets:
            with refused(codes.STORE_FULL) as caught:
                await ticket.durable()
            assert "Free some space on that disk, then try again." in caught.value.message
        disk.fails_with = 0


async def test_a_retried_stream_adds_only_what_is_missing(store: Store) -> None:
    session_id = await new_session(store)
    async with store.appender(session_id) as stream:
        for number in range(60):
            await stream.append(reply(number), key=f"reply {number}")

    async with store.appender(session_id) as again:
        tickets = [await again.append(reply(number), key=f"reply {number}") for number in range(40, 80)]

    assert [await ticket.durable() for ticket in tickets] == list(range(41, 81))
    assert await texts(store, session_id) == [f"piece {number} " for number in range(80)]


async def test_what_belongs_to_an_event_is_written_with_it_and_not_again_on_a_retry(store: Store) -> None:
    session_id = await new_session(store)
    ran: list[str] = []

    def also(tx: Tx) -> None:
        ran.append("also")

    for _ in range(3):
        async with store.appender(session_id) as stream:
            await stream.append(reply(1), key="once", also=also)

    assert ran == ["also"]


async def test_an_event_whose_companion_fails_is_not_kept(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id)

    def fail(tx: Tx) -> None:
        raise RuntimeError("no audit, no event")

    ticket = await stream.append(reply(1), also=fail)

    with pytest.raises(RuntimeError, match="no audit"):
        await ticket.durable()
    assert await texts(store, session_id) == []


async def test_a_waiter_that_gives_up_does_not_stop_the_others(store: Store) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id)
    ticket = await stream.append(reply(1))
    impatient = asyncio.ensure_future(ticket.durable())
    patient = asyncio.ensure_future(ticket.durable())

    impatient.cancel()

    assert await patient == 1


@pytest.mark.promise("AUD-03")
async def test_a_stream_hides_the_secrets_it_was_told(store: Store) -> None:
    session_id = await new_session(store)
    call = ToolCalled(
        call_id="c", server="s", tool="t", arguments={"url": "https://x/?k=hunter22", "api_key": "other"}
    )

    async with store.appender(session_id, mask=Mask.of(["hunter22"])) as stream:
        await stream.append(Replied(message_id="m", text="it is hunter22!"))
        await stream.append(call)

    first, second = [stored.event async for stored in store.events(session_id)]
    assert first == Replied(message_id="m", text=f"it is {MASKED}!")
    assert isinstance(second, ToolCalled)
    assert second.arguments == {"url": f"https://x/?k={MASKED}", "api_key": MASKED}


async def test_a_window_holds_at_least_one_event(store: Store) -> None:
    with refused(codes.BAD_ARGUMENT):
        store.appender(await new_session(store), window=0)


def _pragma(tx: Tx, name: str) -> object:
    return tx._db.execute(f"PRAGMA {name}").fetchone()[0]  # type: ignore[attr-defined]


def _overheard(said: list[str]):
    """The real connection, with every statement noted."""

    class Overheard:
        def __init__(self, db: Database) -> None:
            self._db = db
            self.close = db.close

        @property
        def in_transaction(self) -> bool:
            return self._db.in_transaction

        def execute(self, sql: str, parameters: object = (), /):
            said.append(sql)
            return self._db.execute(sql, parameters)  # type: ignore[arg-type]

    def open_it(path: Path, synchronous: Synchronous) -> Database:
        return Overheard(connect(path, synchronous))

    return open_it


async def test_of_many_events_without_keys_only_the_one_to_blame_and_those_after_it_fail(
    store: Store,
) -> None:
    session_id = await new_session(store)
    stream = store.appender(session_id, window=100)

    tickets = [await stream.append(reply(number)) for number in range(20)]
    bad = await stream.append(Replied(message_id="m", text="\ud800"))
    late = await stream.append(reply(21))
    outcomes = await asyncio.gather(*(ticket.durable() for ticket in tickets))

    assert outcomes == list(range(1, 21))
    with refused(codes.UNSTORABLE):
        await bad.durable()
    with refused(codes.STREAM_BROKEN):
        await late.durable()
    assert await texts(store, session_id) == [f"piece {number} " for number in range(20)]


async def test_what_makes_sense_only_after_another_fails_with_it_though_the_stream_was_mended(
    tmp_path: Path,
) -> None:
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        appender = store.appender(session_id)
        disk.fails_with = sqlite3.SQLITE_FULL
        first = await appender.append(reply(1))
        assert not await first.kept()
        disk.fails_with = 0
        appender.mend()
        after = await appender.append(reply(2), after=first)
        alone = await appender.append(reply(3))

        assert (await after.kept(), await alone.kept()) == (False, True)
        assert await texts(store, session_id) == ["piece 3 "]
