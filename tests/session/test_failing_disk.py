"""With a disk that fails at random, cancelled calls and closed sessions, each call has one end and one record."""

import asyncio
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.record import AuditKind
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, ToolCalled, ToolEnded, ToolStarted
from holdfast.session.session import Session
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Rows
from holdfast.store.store import ReadTx
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import audit_records
from tests.store.disks import FailingDisk

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("HOLDFAST_DISK_ROUNDS", "6"))
FAILURES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)


async def one_call(session: Session, chance: random.Random) -> None:
    name = chance.choice(["c.count", "c.count", "c.sleep", "c.nothing"])
    call = asyncio.create_task(session.call(name, {"seconds": 0.02}))
    await asyncio.sleep(chance.random() / 50)
    if chance.random() < 0.2:
        call.cancel()
    await asyncio.wait([call])
    if not call.cancelled() and (error := call.exception()) is not None:
        assert isinstance(error, HoldfastError), error


async def one_round(host: Host, session: Session, chance: random.Random) -> int:
    """Make concurrent calls, and perhaps close the session between them. Returns -1 if it was closed, else 0."""
    calls = [asyncio.create_task(one_call(session, chance)) for _ in range(60)]
    closes = chance.random() < 0.5
    if closes:
        await asyncio.sleep(chance.random() / 5)
        await session.close()
    await asyncio.wait(calls)
    for call in calls:
        call.result()
    return -1 if closes else 0


class UnreliableDisk(FailingDisk):
    """A disk that fails about every other commit while `is_unreliable` is set."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.is_unreliable = False
        self._chance = chance

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        fails = sql == "COMMIT" and self.is_unreliable and self._chance.random() < 0.5
        self.fails_with = self._chance.choice(FAILURES) if fails else 0
        return super().execute(sql, parameters)


@pytest.mark.promise("AUD-01", "STO-03")
async def test_every_call_has_one_end_and_one_record(make_host: HostFactory, tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("HOLDFAST_SEED", "1"))
    outcomes = Counter[str]()
    disk = UnreliableDisk(random.Random(chance.random()))
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=make_host({}).settings, servers={"c": counter_entry()}, store=store) as host,
    ):
        for _ in range(ROUNDS):
            session = await host.open(OpenOptions(cwd=tmp_path))
            await session.wait_ready_and_store()
            disk.is_unreliable = True
            counted = await one_round(host, session, chance)
            disk.is_unreliable = False
            if counted == 0:
                counted = int((await session.call("c.count")).text)
                await session.close()
            await host.store.write(lambda tx: tx.index_messages())  # postponed writes come first
            outcomes += await _check(host, session, counted)

    assert outcomes[Outcome.REFUSED] > 0  # some writes failed
    assert len(outcomes) > 1  # and some did not


async def _check(host: Host, session: Session, counted: int) -> Counter[str]:
    session_id = session.context.session_id
    events = [stored.event async for stored in host.store.events(session_id)]
    called = [event.call_id for event in events if isinstance(event, ToolCalled)]
    started = {event.call_id for event in events if isinstance(event, ToolStarted)}
    ended = Counter(event.call_id for event in events if isinstance(event, ToolEnded))
    records = [
        record for record in await audit_records(host, AuditKind.CALL) if record.session_id == session_id
    ]
    per_call = Counter(record.call_id for record in records)

    def still_open(tx: ReadTx) -> int:
        return len(tx.open_calls(session_id))

    assert ended == Counter(called)
    assert started <= set(called)
    assert max(per_call.values(), default=1) == 1
    assert set(called) <= set(per_call)
    assert {record.outcome for record in records if record.call_id not in called} <= {
        Outcome.REFUSED,
        Outcome.CANCELLED,
    }
    assert await host.store.read(still_open) == 0
    if counted >= 0:
        completed = sum(record.tool == "count" and record.outcome == Outcome.COMPLETED for record in records)
        cancelled = sum(record.tool == "count" and record.outcome == Outcome.CANCELLED for record in records)
        assert completed <= counted <= completed + cancelled
    return Counter(record.outcome for record in records)
