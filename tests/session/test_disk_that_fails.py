"""A disk that fails at random moments, calls that are cancelled, sessions that are closed: each call has one end and one record."""

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
from holdfast.host import Host, Opening
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, ToolCalled, ToolEnded, ToolStarted
from holdfast.session.session import Session
from holdfast.store.database import Rows
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Reads
from tests.connect.conftest import HostFactory, counter, make_host
from tests.session.test_audited import notes
from tests.store.disks import Failing

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
    """Calls at once in a session, which may be closed in the midst of them; how often its server counted, or -1."""
    calls = [asyncio.create_task(one_call(session, chance)) for _ in range(60)]
    closes = chance.random() < 0.5
    if closes:
        await asyncio.sleep(chance.random() / 5)
        await host.close_session(session)
    await asyncio.wait(calls)
    for call in calls:
        call.result()
    return -1 if closes else 0


class Moody(Failing):
    """A disk that fails every other commit or so, while it is in trouble."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.in_trouble = False
        self._chance = chance

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        fails = sql == "COMMIT" and self.in_trouble and self._chance.random() < 0.5
        self.fails_with = self._chance.choice(FAILURES) if fails else 0
        return super().execute(sql, parameters)


@pytest.mark.promise("AUD-01", "STO-03")
async def test_each_call_has_one_end_and_one_record(make_host: HostFactory, tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("HOLDFAST_SEED", "1"))
    outcomes = Counter[str]()
    disk = Moody(random.Random(chance.random()))
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=make_host({}).settings, servers={"c": counter()}, store=store) as host,
    ):
        for _ in range(ROUNDS):
            session = await host.open(Opening(cwd=tmp_path))
            await session.settle()
            disk.in_trouble = True
            counted = await one_round(host, session, chance)
            disk.in_trouble = False
            if counted == 0:
                counted = int((await session.call("c.count")).text)
                await host.close_session(session)
            await host.store.write(lambda tx: tx.index())  # what was owed is written before this
            outcomes += await _check(host, session, counted)

    assert outcomes[Outcome.REFUSED] > 0  # it really failed
    assert len(outcomes) > 1  # and not always


async def _check(host: Host, session: Session, counted: int) -> Counter[str]:
    session_id = session.context.session_id
    events = [stored.event async for stored in host.store.events(session_id)]
    called = [event.call_id for event in events if isinstance(event, ToolCalled)]
    started = {event.call_id for event in events if isinstance(event, ToolStarted)}
    ended = Counter(event.call_id for event in events if isinstance(event, ToolEnded))
    kept = [note for note in await notes(host, AuditKind.CALL) if note.session_id == session_id]
    records = Counter(note.call_id for note in kept)

    def still_open(reads: Reads) -> int:
        return len(reads.open_calls(session_id))

    assert ended == Counter(called)
    assert started <= set(called)
    assert max(records.values(), default=1) == 1
    assert set(called) <= set(records)
    assert {note.outcome for note in kept if note.call_id not in called} <= {
        Outcome.REFUSED,
        Outcome.CANCELLED,
    }
    assert await host.store.read(still_open) == 0
    if counted >= 0:
        sure = sum(note.tool == "count" and note.outcome == Outcome.COMPLETED for note in kept)
        unsure = sum(note.tool == "count" and note.outcome == Outcome.CANCELLED for note in kept)
        assert sure <= counted <= sure + unsure
    return Counter(note.outcome for note in kept)
