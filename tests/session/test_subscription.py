"""Subscribers get every stored event once and in order, each at its own speed, from memory or from the store."""

import asyncio
import os
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.codes import Code
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Prompted, Replied
from holdfast.model.ids import new_call_id, new_session_id
from holdfast.model.trust import Trust
from holdfast.session import subscription
from holdfast.session.record import Record
from holdfast.session.subscription import EventFeed, Subscription
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.types import NewSession, StoredEvent
from tests.store.disks import FailingDisk, FailingReads

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-02")]

SLOW_EVENTS = int(os.environ.get("HOLDFAST_SUBSCRIBER_EVENTS", "100000"))
ROUNDS = int(os.environ.get("HOLDFAST_SUBSCRIBER_ROUNDS", "3"))


@asynccontextmanager
async def open_record(store: Store) -> AsyncIterator[Record]:
    context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    async with Audit(store) as audit:
        await store.create(NewSession(context=context))
        yield Record(context, await store.acquire(context.session_id), store, audit, Mask())


async def append_many(record: Record, count: int, text: str = "") -> None:
    for number in range(count):
        await record.append(Replied(message_id="m", text=f"{number} {text}"))
    await record.flush()


async def read_all(subscription: Subscription) -> list[StoredEvent]:
    return [stored async for stored in subscription]


async def test_subscribers_get_what_the_store_has_from_any_number_on(tmp_path: Path):
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        early = asyncio.create_task(read_all(record.events.subscribe()))
        await append_many(record, 3000)
        late, middle = record.events.subscribe(), record.events.subscribe(after=1234)
        await append_many(record, 3000)
        await record.close("closed")
        stored = [one async for one in store.events(record.hold.session_id)]

        assert await early == await read_all(late) == stored
        assert await read_all(middle) == stored[1234:]


async def test_subscriber_of_numbers_to_come_gets_nothing_before_them():
    async with MemoryStore() as store, open_record(store) as record:
        await append_many(record, 3)
        ahead = record.events.subscribe(after=6)
        await append_many(record, 5)
        await record.close("closed")

        assert [stored.seq for stored in await read_all(ahead)] == [7, 8, 9]


async def test_a_loop_that_is_left_early_can_be_continued_without_a_gap():
    async with MemoryStore() as store, open_record(store) as record:
        await append_many(record, 5)
        events = record.events.subscribe()
        read = [await anext(events)]
        async for stored in events:
            read.append(stored)
            break
        await record.close("closed")
        read += await read_all(events)

    assert [stored.seq for stored in read] == [1, 2, 3, 4, 5, 6]


async def test_each_of_many_subscribers_gets_every_event_once_and_in_order():
    async with MemoryStore() as store, open_record(store) as record:
        readers = [asyncio.create_task(read_all(record.events.subscribe())) for _ in range(500)]
        await append_many(record, 50)
        await record.close("closed")
        stored = [one async for one in store.events(record.hold.session_id)]

        assert all(read == stored for read in await asyncio.gather(*readers))
        assert [one.seq for one in stored] == [*range(1, 52)]


async def test_subscriber_that_stops_reading_delays_neither_the_writer_nor_the_others():
    async with MemoryStore() as store, open_record(store) as record:
        stopped, reading = record.events.subscribe(), record.events.subscribe()
        await record.append(Replied(message_id="m", text="first"))
        await record.flush()
        first = await stopped.next_batch()
        others = asyncio.create_task(read_all(reading))
        await append_many(record, 20_000)
        await reading.wait_handled(20_001)
        behind = record.events.last - stopped.position
        await record.close("closed")

        assert (len(first), behind, len(await others)) == (1, 20_000, 20_002)
        assert len(await read_all(stopped)) == 20_001


@pytest.mark.slow
async def test_memory_stays_flat_while_a_subscriber_is_slow(tmp_path: Path):
    """The subscriber gets all events in the end. Events that were kept for it would take over 1000 bytes each."""
    text = "x" * 600
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        slow = record.events.subscribe()
        await append_many(record, 10_000, text)  # by now the feed is full
        before = resident_bytes()
        await append_many(record, SLOW_EVENTS, text)
        grown, last = resident_bytes() - before, 0
        while last < 10_000 + SLOW_EVENTS:
            batch = await slow.next_batch()
            assert batch[0].seq == last + 1
            last = batch[-1].seq
        grown = max(grown, resident_bytes() - before)

    print(f"{SLOW_EVENTS} events to a slow subscriber: {grown / 1e6:.1f} MB growth")
    assert grown < 40_000_000 <= SLOW_EVENTS * 1000 / 2


def kept_events(record: Record) -> int:
    return len(record.events._recent or ())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_memory_is_limited_by_the_size_of_the_events():
    async with MemoryStore() as store, open_record(store) as record:
        subscription = record.events.subscribe()
        await append_many(record, 100, "x" * 1_000_000)
        await append_many(record, 10)

        assert 10 <= kept_events(record) < 10 + 5
        subscription.close()


async def test_no_event_is_kept_in_memory_without_a_subscriber():
    async with MemoryStore() as store, open_record(store) as record:
        await append_many(record, 10)
        before = kept_events(record)
        closed, dropped, late = [record.events.subscribe() for _ in range(3)]
        await append_many(record, 10)
        during = kept_events(record)
        closed.close()
        closed.close()
        del dropped
        late_events = len(await late.next_batch())
        late.close()
        await append_many(record, 10)

        assert (before, during, late_events, kept_events(record)) == (0, 10, 20, 0)
        assert not record.events.subscription_count


async def test_control_a_feed_without_limits_keeps_every_event():
    async with MemoryStore() as store, open_record(store) as record:
        record.events._max_bytes = record.events._max_events = 10**9
        subscription = record.events.subscribe()
        await append_many(record, 5000, "x" * 1000)

        assert kept_events(record) == 5000
        subscription.close()


async def test_events_after_a_gap_are_read_from_the_store():
    """Another writer stores an event without telling the feed."""
    async with MemoryStore() as store, open_record(store) as record:
        subscription = record.events.subscribe()
        await append_many(record, 3)
        await store.append(record.hold, Replied(message_id="m", text="of another writer"))
        await append_many(record, 3)
        await record.close("closed")
        stored = [one async for one in store.events(record.hold.session_id)]
        kept = kept_events(record)
        read = [await read_all(record.events.subscribe(after)) for after in range(8)]

        assert await read_all(subscription) == stored
        assert read == [stored[after:] for after in range(8)]
        assert (len(stored), kept) == (8, 4)


async def test_event_that_is_stored_late_reaches_a_waiting_subscriber():
    async with MemoryStore() as store, open_record(store) as record:
        await append_many(record, 3)
        subscription = record.events.subscribe(after=3)
        waiting = asyncio.create_task(subscription.next_batch())
        await asyncio.sleep(0)
        appended = await store.append(record.hold, Replied(message_id="m", text="late"))
        record.events.advance(appended.seq)

        assert [stored.seq for stored in await waiting] == [4]


async def test_reader_has_handled_events_when_it_asks_for_the_next():
    feed = EventFeed(new_session_id(), MemoryStore())
    subscription = feed.subscribe()
    feed.publish([_stored(1), _stored(2)], [1, 1])
    handled = asyncio.create_task(subscription.wait_handled(2))
    await subscription.next_batch()
    await asyncio.sleep(0)
    before = handled.done()
    reading = asyncio.create_task(subscription.next_batch())
    await handled
    subscription.close()

    assert (before, await reading) == (False, ())


async def test_wait_for_a_reader_that_is_gone_ends():
    feed = EventFeed(new_session_id(), MemoryStore())
    subscription = feed.subscribe()
    feed.publish([_stored(1)], [1])
    handled = asyncio.create_task(subscription.wait_handled(1))
    await asyncio.sleep(0)
    subscription.close()
    await handled


async def test_a_hidden_prompt_is_left_out_and_others_are_not():
    feed = EventFeed(new_session_id(), MemoryStore())
    subscription = feed.subscribe()
    subscription.hide_prompt("own")
    feed.publish([_prompted(1, "own"), _prompted(2, "other"), _prompted(3, "own")], [1] * 3)
    batch = await subscription.next_batch()

    assert [stored.seq for stored in batch] == [2, 3]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR], ids=["busy", "io error"])
async def test_read_that_fails_for_a_moment_is_repeated(tmp_path: Path, code: int):
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        record.events._max_events = 1
        await append_many(record, 100)
        reads = FailingReads(store, code=code, times=3)
        read = await record.events.subscribe().next_batch()

    assert ([stored.seq for stored in read], reads.times) == ([*range(1, 101)], 0)


@pytest.mark.parametrize(
    ("retries", "code", "expected", "attempts"),
    [
        (3, sqlite3.SQLITE_IOERR, codes.STORE_FAILED, 4),
        # Control: without retries, the first failure ends the read.
        (0, sqlite3.SQLITE_IOERR, codes.STORE_FAILED, 1),
        (3, sqlite3.SQLITE_CORRUPT, codes.STORE_CORRUPT, 1),
    ],
    ids=["keeps failing", "control", "damaged"],
)
async def test_read_that_keeps_failing_raises_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int, code: int, expected: Code, attempts: int
):
    monkeypatch.setattr(subscription, "RETRY_SECONDS", (0.0,) * retries)
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        record.events._max_events = 1
        await append_many(record, 100)
        reads = FailingReads(store, code=code, times=100)
        with pytest.raises(HoldfastError) as failed:
            await record.events.subscribe().next_batch()
        reads.times, failures = 0, 100 - reads.times

    assert (failed.value.code, failures) == (expected, attempts)


async def test_subscription_that_is_closed_while_reads_fail_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subscription, "RETRY_SECONDS", (3600.0,))
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        record.events._max_events = 1
        await append_many(record, 100)
        reads = FailingReads(store, code=sqlite3.SQLITE_BUSY, times=1)
        reader = record.events.subscribe()
        reading = asyncio.create_task(reader.next_batch())
        while reads.times:
            await asyncio.sleep(0.001)
        reader.close()

        assert await asyncio.wait_for(reading, 10) == ()


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_nothing_is_lost_or_doubled_between_replay_and_live(tmp_path: Path, seed: int):
    """Subscribers come and pause at random while events are stored on a disk that fails at times."""
    chance = random.Random(f"{os.environ.get('HOLDFAST_SEED', '1')} {seed}")
    disk = FailingDisk()
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        open_record(store) as record,
    ):
        record.events._max_events = 50
        readers: list[tuple[int, asyncio.Task[list[StoredEvent]]]] = []
        for step in range(150):
            if chance.random() < 0.15:
                after = chance.randint(0, record.events.last)
                slow = random.Random(step)
                readers.append((after, asyncio.create_task(_pausing(record.events.subscribe(after), slow))))
            await _write_something(record, disk, chance)
        disk.fails_with = 0
        await store.write(lambda tx: None)  # postponed writes go first
        await record.add(Replied(message_id="m", text="last"))
        await record.close("closed")
        stored = [one async for one in store.events(record.hold.session_id)]
        read = [(after, await reader) for after, reader in readers]

    assert [one.seq for one in stored] == [*range(1, len(stored) + 1)]
    assert len(read) > 5
    for after, events in read:
        assert events == stored[after:]


async def _write_something(record: Record, disk: FailingDisk, chance: random.Random) -> None:
    disk.fails_with = sqlite3.SQLITE_FULL if chance.random() < 0.3 else 0
    call = ToolCall(call_id=new_call_id(), server="s", tool="t")
    try:
        if chance.random() < 0.5:
            for _ in range(chance.randint(1, 40)):
                await record.append(Replied(message_id="m", text="x"))
            await record.flush()
        else:
            await record.calls.add_call(call)
            await record.flush()
            disk.fails_with = sqlite3.SQLITE_FULL if chance.random() < 0.5 else 0
            await record.calls.add_decision(call, Decision.ALLOW_ONCE)  # written late, if the disk is full
    except HoldfastError:
        disk.fails_with = 0
        await record.recover()
    finally:
        record._writer.running_calls.pop(call.call_id, None)
    if chance.random() < 0.5:
        await asyncio.sleep(chance.random() / 500)


async def _pausing(subscription: Subscription, chance: random.Random) -> list[StoredEvent]:
    events: list[StoredEvent] = []
    while batch := await subscription.next_batch():
        events += batch
        await asyncio.sleep(chance.random() / 100 if chance.random() < 0.5 else 0)
    return events


def _stored(seq: int) -> StoredEvent:
    return StoredEvent(seq=seq, at_microseconds=0, event=Replied(message_id="m", text="x"))


def _prompted(seq: int, message_id: str) -> StoredEvent:
    event = Prompted(turn_id=f"turn_{seq}", message_id=message_id, blocks=())
    return StoredEvent(seq=seq, at_microseconds=0, event=event)
