"""The store: appending in batches or one by one, reading one session of many, and the effect of size."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite

from benchmarks.result import Result
from holdfast.model.context import SessionContext
from holdfast.model.event import Replied
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.store.event_codec import encode_event
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Tx
from holdfast.store.types import Hold, NewSession

ROUNDS = 5
WINDOW = 200
PIPELINED = 5000
ONE_BY_ONE = 400
SESSIONS = 10_000
FEW, MANY, BATCH = 1_000, 1_000_000, 50_000
# All figures are for an event of 450 bytes.
EVENT = Replied(message_id="msg_" + "0" * 32, text="x" * 386)


def results() -> list[Result]:
    """Measure everything in one run, alternating between the measures."""
    return asyncio.run(_results())


async def _results() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        return [*await _appending(Path(folder)), *await _size(Path(folder))]


async def _appending(folder: Path) -> list[Result]:
    async with SqliteStore(folder / "ours.db") as store, aiosqlite.connect(folder / "aiosqlite.db") as peer:
        session_id = await _session(store)
        await _prepare(peer)
        pipelined, single, theirs = await _medians(
            lambda round: _per_second(
                PIPELINED, _append_in_a_window(store, session_id, PIPELINED, f"w{round}")
            ),
            lambda round: _per_second(ONE_BY_ONE, _append_one_by_one(store, session_id, f"o{round}")),
            lambda round: _per_second(ONE_BY_ONE, _append_with_aiosqlite(peer, round)),
        )
    return [
        Result(
            name="store.append.per_s",
            ours=pipelined,
            peer=single,
            peer_name="the same store, a commit per event",
            unit="events/s",
            goal=">= 8",
        ),
        Result(
            name="store.append.aiosqlite.per_s",
            ours=pipelined,
            peer=theirs,
            peer_name="aiosqlite, a commit per event, same durability",
            unit="events/s",
            goal=">= 8",
        ),
    ]


async def _size(folder: Path) -> list[Result]:
    async with SqliteStore(folder / "small.db") as small, SqliteStore(folder / "large.db") as large:
        one = await _session(small)
        await _append_in_a_window(small, one, FEW, "fill")
        long = await _fill(large)
        small_us, large_us, read_ms = await _medians(
            lambda round: _microseconds(_append_in_a_window(small, one, FEW, f"n{round}")),
            lambda round: _microseconds(_append_in_a_window(large, long, FEW, f"f{round}")),
            lambda _: _read(large, long),
        )
    return [
        Result(
            name="store.append.flat.us",
            ours=large_us,
            peer=small_us,
            peer_name=f"the same at {FEW:,} events, ours at {MANY:,}",
            unit="us/event",
            goal="<= 1.5",
        ),
        Result(
            name="store.read10k.ms",
            ours=read_ms,
            peer=50,
            peer_name=f"the bound, for 10,000 events of one among {SESSIONS:,} sessions",
            unit="ms",
            goal="<= 1",
        ),
    ]


async def _medians(*measures: Callable[[int], Awaitable[float]]) -> list[float]:
    """The median of each measure over all rounds. Each round runs every measure once."""
    rounds = [[await measure(round) for measure in measures] for round in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


async def _per_second(count: int, work: Awaitable[None]) -> float:
    start_time = time.perf_counter()
    await work
    return count / (time.perf_counter() - start_time)


async def _microseconds(work: Awaitable[None]) -> float:
    return 1e6 / await _per_second(FEW, work)


async def _append_in_a_window(store: SqliteStore, hold: Hold, count: int, key: str) -> None:
    async with store.appender(hold, window=WINDOW) as stream:
        for number in range(count):
            await stream.append(EVENT, key=f"{key}:{number}")


async def _append_one_by_one(store: SqliteStore, hold: Hold, key: str) -> None:
    for number in range(ONE_BY_ONE):
        await store.append(hold, EVENT, f"{key}:{number}")


async def _append_with_aiosqlite(db: aiosqlite.Connection, round: int) -> None:
    for number in range(ONE_BY_ONE):
        kind, body = encode_event(EVENT)
        seq = round * ONE_BY_ONE + number
        await db.execute(
            "INSERT INTO events VALUES (1, ?, ?, ?, ?, ?)", (seq, time.time_ns(), kind, str(seq), body)
        )
        await db.commit()


async def _prepare(db: aiosqlite.Connection) -> None:
    await db.execute("PRAGMA journal_mode = WAL")
    await db.execute("PRAGMA synchronous = FULL")
    await db.execute(
        "CREATE TABLE events (session INTEGER, seq INTEGER, at INTEGER, kind TEXT, key TEXT, body BLOB, "
        "PRIMARY KEY (session, seq)) WITHOUT ROWID"
    )
    await db.execute("CREATE UNIQUE INDEX by_key ON events (session, key)")
    await db.commit()


async def _session(store: SqliteStore) -> Hold:
    return await store.write(_create)


async def _fill(store: SqliteStore) -> Hold:
    """Append a million events: 10,000 to one session, and the rest spread over the others."""
    sessions = await store.write(lambda tx: [_create(tx) for _ in range(SESSIONS - 1)])
    long = await _session(store)
    for start in range(0, MANY, BATCH):
        await store.write(lambda tx, start=start: _append_batch(tx, sessions, long, start))
    return long


def _create(tx: Tx) -> Hold:
    context = SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED)
    return tx.acquire(tx.create(NewSession(context=context)).context.session_id)


def _append_batch(tx: Tx, sessions: list[Hold], long: Hold, start: int) -> None:
    for number in range(start, start + BATCH):
        tx.append(long if number % 100 == 0 else sessions[number % len(sessions)], EVENT, f"k{number}")


async def _read(store: SqliteStore, hold: Hold) -> float:
    start_time = time.perf_counter()
    count = 0
    async for _ in store.events(hold.session_id):
        count += 1
        if count == 10_000:
            break
    return (time.perf_counter() - start_time) * 1000
