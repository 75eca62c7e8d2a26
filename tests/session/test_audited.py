"""Every call, refusal and denied attempt leaves exactly one record of the audit, before anybody hears of it."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind, AuditRecord, hash_arguments, read_record
from holdfast.host import DATABASE, Host, Opening
from holdfast.model.event import ToolCalled, ToolEnded
from holdfast.store.store import Reads
from tests.connect.conftest import HostFactory, counter, hostile, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


async def notes(host: Host, *kinds: AuditKind) -> Sequence[AuditRecord]:
    rows = await host.store.read(lambda reads: [*reads.audit_rows()])
    return [note for note in (read_record(row.body) for row in rows) if note.kind in kinds]


@pytest.mark.promise("AUD-01")
async def test_each_way_a_call_can_end_is_one_record(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count", {"a": 1})
        await session.call("c.fail")
        await session.call("c.refuse")
        await session.call("c.sleep", {"seconds": 60}, timeout=0.01)
        await session.call("c.die")
        cancelled = asyncio.create_task(session.call("c.sleep", {"seconds": 60}))
        await session.call("c.count")  # it has come back, and the one before it has arrived
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await session.call("c.nothing", {"b": 2})
        kept = await notes(host, AuditKind.CALL, AuditKind.DENIED)

    assert [(note.kind, note.server, note.tool, note.outcome, note.reason) for note in kept[:-1]] == [
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "fail", "failed", ""),
        (AuditKind.CALL, "c", "refuse", "failed", "PEER_ERROR"),
        (AuditKind.CALL, "c", "sleep", "failed", "TIMEOUT"),
        (AuditKind.CALL, "c", "die", "failed", "CONNECTION_CLOSED"),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "sleep", "cancelled", "CANCELLED"),
    ]
    assert (kept[-1].kind, kept[-1].tool, kept[-1].outcome) == (AuditKind.DENIED, "c.nothing", "UNKNOWN_TOOL")
    assert [kept[0].arguments_hash, kept[-1].arguments_hash] == [
        hash_arguments(b'{"a":1}'),
        hash_arguments(b'{"b":2}'),
    ]
    assert {(note.session_id, note.trust_level) for note in kept} == {(session.context.session_id, "direct")}
    assert [note.duration_ms > 0 for note in kept[:-1]] == [True] * 7


@pytest.mark.promise("AUD-01")
@pytest.mark.promise("RES-09")
async def test_each_server_that_was_refused_is_one_record(make_host: HostFactory, tmp_path: Path):
    servers = {
        "good": counter(),
        "broken": {"command": 1},
        "missing": {"command": "/no/such"},
        "x": hostile("exits"),
    }
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        kept = await notes(host, AuditKind.REFUSAL)

    assert [(note.server, note.outcome) for note in kept] == [
        (refusal.server, refusal.stage) for refusal in session.refusals
    ]
    assert [note.server for note in kept] == ["broken", "missing", "x"]


@pytest.mark.promise("AUD-01")
async def test_many_calls_at_once_are_as_many_records_and_the_chain_holds(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter()}, durable=True) as host:
        sessions = [await host.open(Opening(cwd=tmp_path)) for _ in range(3)]
        await asyncio.gather(*(session.call("c.count") for session in sessions for _ in range(100)))
        ids = [note.call_id for note in await notes(host, AuditKind.CALL)]
        verdict = await host.store.read(lambda reads: verify_store(reads, host._audit._anchor.read()))

    assert (len(ids), len(set(ids)), verdict.good) == (300, 300, True)


@pytest.mark.promise("AUD-01")
async def test_it_is_on_disk_before_the_answer_is_told(make_host: HostFactory, tmp_path: Path):
    """Looked up by another connection, in the moment in which the caller goes on."""
    async with make_host({"c": counter()}, durable=True) as host, host.session(cwd=tmp_path) as session:
        with closing(sqlite3.connect(tmp_path / "data" / DATABASE, timeout=10)) as other:

            def on_disk() -> int:
                return other.execute("SELECT count(*) FROM audit").fetchone()[0]

            before = on_disk()
            seen: list[int] = []
            for name in ("c.count", "c.fail", "c.nothing", "c.die", "c.count"):
                await session.call(name)
                seen.append(on_disk() - before)

    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.promise("AUD-01")
async def test_in_no_commit_is_there_an_end_without_its_record_or_a_record_without_its_end(
    make_host: HostFactory, tmp_path: Path
):
    counts: list[tuple[int, int]] = []

    def look(reads: Reads) -> None:
        rows = [read_record(row.body) for row in reads.audit_rows()]
        ended = [
            kept for kept in reads.events(session.context.session_id) if isinstance(kept.event, ToolEnded)
        ]
        counts.append((sum(row.kind is AuditKind.CALL for row in rows), len(ended)))

    async with make_host({"c": counter()}, durable=True) as host:
        session = await host.open(Opening(cwd=tmp_path))
        host.store.after_commit(look)
        await asyncio.gather(*(session.call("c.count") for _ in range(50)))
        events = [kept.event async for kept in host.store.events(session.context.session_id)]

    assert [(records, ends) for records, ends in counts if records != ends] == []
    begun = {event.call_id for event in events if isinstance(event, ToolCalled)}
    assert begun == {event.call_id for event in events if isinstance(event, ToolEnded)}
    assert len(begun) == 50
