"""Every call, refusal, decision and denied attempt leaves exactly one record of the audit, before anybody hears of it."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.acp.translate import updates
from holdfast.agent.manual import Manual
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind, AuditRecord, hash_arguments, read_record
from holdfast.host import DATABASE, Host, Opening
from holdfast.model.call import ToolCall
from holdfast.model.event import Decision, Event, ServersResolved, ToolCalled, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.model.mask import MASKED
from holdfast.model.ports import Powers
from holdfast.session.permission import Mode
from holdfast.session.turn import Conversation
from holdfast.store.store import Reads
from tests.connect.conftest import HostFactory, counter, hostile, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


class Person:
    """Somebody who answers when asked for permission, and does nothing else."""

    powers = Powers(permits=True)

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = [*decisions]

    async def permit(self, call: ToolCall, title: str) -> Decision:
        return self._decisions.pop(0)

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def sample(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def read_text(self, path: str) -> str:
        raise NotImplementedError

    async def write_text(self, path: str, text: str) -> None:
        raise NotImplementedError


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


@pytest.mark.promise("AUD-01", "RES-09")
async def test_a_refusal_is_recorded_as_it_falls_and_once_however_soon_the_session_is_closed(
    make_host: HostFactory, tmp_path: Path
):
    servers = {"broken": {"command": 1}, "x": hostile("exits"), "mute": {"command": "sleep", "args": ["60"]}}
    fell = asyncio.Event()

    async def hear(event: Event) -> None:
        if isinstance(event, ServersResolved) and event.refusals[-1].server == "x":
            fell.set()

    async with make_host(servers) as host:
        session = await host.open(Opening(cwd=tmp_path))
        session.record.listen(hear)
        at_once = [note.server for note in await notes(host, AuditKind.REFUSAL)]
        await asyncio.wait_for(fell.wait(), 20)
        starting = session.starting
        while_one_starts = [note.server for note in await notes(host, AuditKind.REFUSAL)]
        await host.close_session(session)
        kept = await notes(host, AuditKind.REFUSAL)
        resolved = await host.store.read(lambda reads: reads.resolution(session.context.session_id))

    assert at_once == ["broken"]
    assert (while_one_starts, starting) == (["broken", "x"], ("mute",))
    assert [(note.server, note.outcome) for note in kept] == [("broken", "validate"), ("x", "connect")]
    assert resolved is not None
    assert [refusal.server for refusal in resolved.refusals] == ["broken", "x"]


async def test_who_stands_is_stored_once_and_not_again_while_it_is_the_same(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter()}) as host:
        async with host.session(cwd=tmp_path) as session:
            await session.settle()
        events = [kept.event async for kept in host.store.events(session.context.session_id)]

    (resolved,) = (event for event in events if isinstance(event, ServersResolved))
    assert "c" in resolved.servers


@pytest.mark.promise("AUD-01", "ACP-09")
async def test_each_decision_of_a_person_is_one_record_and_what_came_of_it_another(
    make_host: HostFactory, tmp_path: Path
):
    person = Person(Decision.REJECT, Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS)
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Manual(), person)
        for _ in range(4):
            await conversation.prompt([{"type": "text", "text": "/call c.count"}])
        kept = await notes(host, AuditKind.PERMISSION, AuditKind.CALL)

    assert [(note.kind, note.server, note.tool, note.outcome, note.reason) for note in kept] == [
        (AuditKind.PERMISSION, "c", "count", "reject", ""),
        (AuditKind.CALL, "c", "count", "refused", "NOT_PERMITTED"),
        (AuditKind.PERMISSION, "c", "count", "allow_once", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.PERMISSION, "c", "count", "allow_always", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
    ]
    assert [kept[at].call_id == kept[at + 1].call_id for at in (0, 2, 4)] == [True] * 3


@pytest.mark.promise("AUD-01", "ACP-09")
@pytest.mark.parametrize(
    ("mode", "says"), [(Mode.READ_ONLY, "Change the mode to ask or auto"), (Mode.ASK, "--mode auto")]
)
async def test_a_call_refused_by_its_mode_or_for_want_of_a_person_is_recorded_and_shown_as_refused(
    make_host: HostFactory, tmp_path: Path, mode: Mode, says: str
):
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Manual())
        conversation.mode = mode
        await conversation.prompt([{"type": "text", "text": "/call c.count"}])
        kept = await notes(host, AuditKind.PERMISSION, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    (ended,) = (event for event in events if isinstance(event, ToolEnded))
    assert [(note.kind, note.outcome, note.reason) for note in kept] == [
        (AuditKind.CALL, "refused", "NOT_PERMITTED")
    ]
    assert says in str(ended.content)
    assert [update["status"] for update in updates(ended)] == ["failed"]


@pytest.mark.promise("AUD-01", "AUD-03")
@pytest.mark.parametrize("configured", [False, True])
async def test_arguments_are_kept_masked_and_bounded_where_that_is_configured_and_nowhere_else(
    make_host: HostFactory, tmp_path: Path, configured: bool
):
    variables = {"HOLDFAST_AUDIT_ARGUMENTS": "true"} if configured else {}
    servers = {"c": counter(env={"API_KEY": "sekrit-4711"})}
    async with make_host(servers, **variables) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count", {"a": 1, "text": "it is sekrit-4711!", "password": "short"})
        await session.call("c.count", {"text": "x" * 20_000})
        await session.call("c.nothing", {"token": "short"})
        kept = await notes(host, AuditKind.CALL, AuditKind.DENIED)

    masked = {"a": 1, "text": f"it is {MASKED}!", "password": MASKED}
    expected = [masked, {"too_large": "20011 bytes"}, {"token": MASKED}] if configured else [None] * 3
    assert [note.arguments for note in kept] == expected
    assert kept[1].arguments_hash == hash_arguments(b'{"text":"%s"}' % (b"x" * 20_000))


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
