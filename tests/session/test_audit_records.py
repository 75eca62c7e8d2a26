"""Every call, decision, refused server and call of an unknown tool leaves exactly one audit record, before its result is returned."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.acp.updates import Updates
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind, decode_record
from holdfast.host.data_folder import DATABASE_FILE, KEYS_FOLDER
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.masking import MASKED
from holdfast.model.event import Decision, ServersResolved, ToolCalled, ToolEnded
from holdfast.session.permission import Mode
from holdfast.store.store import ReadTx
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry, make_host
from tests.session.support import ScriptedUser, audit_records

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


def _hasher(host: Host) -> ArgumentHasher:
    return ArgumentHasher(host.settings.data_dir / KEYS_FOLDER)


@pytest.mark.promise("AUD-01")
async def test_every_outcome_of_a_call_is_one_record(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count", {"a": 1})
        await session.call("c.fail")
        await session.call("c.refuse")
        await session.call("c.sleep", {"seconds": 60}, timeout=0.01)
        await session.call("c.die")
        cancelled = asyncio.create_task(session.call("c.sleep", {"seconds": 60}))
        await session.call("c.count")  # the server is restarted, and the call before this one is running
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await session.call("c.nothing", {"b": 2})
        records = await audit_records(host, AuditKind.CALL, AuditKind.DENIED)

    assert [
        (record.kind, record.server, record.tool, record.outcome, record.reason) for record in records[:-1]
    ] == [
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "fail", "failed", ""),
        (AuditKind.CALL, "c", "refuse", "failed", "PEER_ERROR"),
        (AuditKind.CALL, "c", "sleep", "failed", "TIMEOUT"),
        (AuditKind.CALL, "c", "die", "failed", "CONNECTION_CLOSED"),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "sleep", "cancelled", "CANCELLED"),
    ]
    assert (records[-1].kind, records[-1].tool, records[-1].outcome) == (
        AuditKind.DENIED,
        "c.nothing",
        "UNKNOWN_TOOL",
    )
    assert [records[0].arguments_hash, records[-1].arguments_hash] == [
        _hasher(host)(b'{"a":1}'),
        _hasher(host)(b'{"b":2}'),
    ]
    assert {(record.session_id, record.trust_level) for record in records} == {
        (session.context.session_id, "direct")
    }
    assert [record.duration_ms > 0 for record in records[:-1]] == [True] * 7


@pytest.mark.promise("AUD-01")
@pytest.mark.promise("RES-09")
async def test_every_refused_server_is_one_record(make_host: HostFactory, tmp_path: Path):
    servers = {
        "good": counter_entry(),
        "broken": {"command": 1},
        "missing": {"command": "/no/such"},
        "x": hostile_entry("exits"),
    }
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        records = await audit_records(host, AuditKind.REFUSAL)

    recorded = sorted((record.server, record.outcome) for record in records)  # servers fail in any order
    assert recorded == sorted((refusal.server, refusal.stage) for refusal in session.refusals)
    assert [server for server, _ in recorded] == ["broken", "missing", "x"]


@pytest.mark.promise("AUD-01", "RES-09")
async def test_refusal_is_recorded_once_and_at_once_even_if_the_session_is_closed_early(
    make_host: HostFactory, tmp_path: Path
):
    servers = {
        "broken": {"command": 1},
        "x": hostile_entry("exits"),
        "mute": {"command": "sleep", "args": ["60"]},
    }
    async with make_host(servers) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        at_once = [record.server for record in await audit_records(host, AuditKind.REFUSAL)]
        async for stored in session.subscribe():
            if isinstance(stored.event, ServersResolved) and stored.event.refusals[-1].server == "x":
                break
        starting = session.starting
        while_one_starts = [record.server for record in await audit_records(host, AuditKind.REFUSAL)]
        await session.close()
        records = await audit_records(host, AuditKind.REFUSAL)
        resolved = await host.store.read(lambda tx: tx.resolution(session.context.session_id))

    assert at_once == ["broken"]
    assert (while_one_starts, starting) == (["broken", "x"], ("mute",))
    assert [(record.server, record.outcome) for record in records] == [
        ("broken", "validate"),
        ("x", "connect"),
    ]
    assert resolved is not None
    assert [refusal.server for refusal in resolved.refusals] == ["broken", "x"]


async def test_unchanged_server_state_is_stored_once(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host:
        async with host.session(cwd=tmp_path) as session:
            await session.wait_ready_and_store()
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    (resolved,) = (event for event in events if isinstance(event, ServersResolved))
    assert "c" in resolved.servers


@pytest.mark.promise("AUD-01", "ACP-09")
async def test_every_decision_of_the_user_is_one_record_and_its_call_another(
    make_host: HostFactory, tmp_path: Path
):
    user = ScriptedUser(Decision.REJECT, Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS)
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        session.attach(user)
        session.permission.mode = Mode.ASK
        for _ in range(4):
            await session.prompt([{"type": "text", "text": "/call c.count"}])
        records = await audit_records(host, AuditKind.PERMISSION, AuditKind.CALL)

    assert [
        (record.kind, record.server, record.tool, record.outcome, record.reason) for record in records
    ] == [
        (AuditKind.PERMISSION, "c", "count", "reject", ""),
        (AuditKind.CALL, "c", "count", "refused", "NOT_PERMITTED"),
        (AuditKind.PERMISSION, "c", "count", "allow_once", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.PERMISSION, "c", "count", "allow_always", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
        (AuditKind.CALL, "c", "count", "completed", ""),
    ]
    assert [records[index].call_id == records[index + 1].call_id for index in (0, 2, 4)] == [True] * 3


@pytest.mark.promise("AUD-01", "ACP-09")
@pytest.mark.parametrize(
    ("mode", "advice"), [(Mode.READ_ONLY, "Change the mode to ask or auto"), (Mode.ASK, 'permission="auto"')]
)
async def test_call_refused_by_the_mode_or_without_a_user_is_recorded_and_shown_as_refused(
    make_host: HostFactory, tmp_path: Path, mode: Mode, advice: str
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        session.permission.mode = mode
        await session.prompt([{"type": "text", "text": "/call c.count"}])
        records = await audit_records(host, AuditKind.PERMISSION, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    (ended,) = (event for event in events if isinstance(event, ToolEnded))
    assert [(record.kind, record.outcome, record.reason) for record in records] == [
        (AuditKind.CALL, "refused", "NOT_PERMITTED")
    ]
    assert advice in str(ended.content)
    assert [update["status"] for update in Updates().for_event(ended)] == ["failed"]


@pytest.mark.promise("AUD-01", "AUD-03")
@pytest.mark.parametrize("configured", [False, True])
async def test_arguments_are_recorded_only_if_configured_masked_and_limited_in_size(
    make_host: HostFactory, tmp_path: Path, configured: bool
):
    variables = {"HOLDFAST_AUDIT_ARGUMENTS": "true"} if configured else {}
    servers = {"c": counter_entry(env={"API_KEY": "sekrit-4711"})}
    async with make_host(servers, **variables) as host, host.session(cwd=tmp_path) as session:
        await session.call("c.count", {"a": 1, "text": "it is sekrit-4711!", "password": "short"})
        await session.call("c.count", {"text": "x" * 20_000})
        await session.call("c.nothing", {"token": "short"})
        records = await audit_records(host, AuditKind.CALL, AuditKind.DENIED)

    masked = {"a": 1, "text": f"it is {MASKED}!", "password": MASKED}
    expected = [masked, {"too_large": "20011 bytes"}, {"token": MASKED}] if configured else [None] * 3
    assert [record.arguments for record in records] == expected
    assert records[1].arguments_hash == _hasher(host)(b'{"text":"%s"}' % (b"x" * 20_000))


@pytest.mark.promise("AUD-01")
async def test_concurrent_calls_leave_one_record_each_and_an_intact_chain(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}, durable=True) as host:
        sessions = [await host.open(OpenOptions(cwd=tmp_path)) for _ in range(3)]
        await asyncio.gather(*(session.call("c.count") for session in sessions for _ in range(100)))
        ids = [record.call_id for record in await audit_records(host, AuditKind.CALL)]
        verdict = await host.store.read(lambda tx: verify_store(tx, host._parts.audit._anchor.read()))

    assert (len(ids), len(set(ids)), verdict.is_intact) == (300, 300, True)


@pytest.mark.promise("AUD-01")
async def test_record_is_on_disk_before_the_result_is_returned(make_host: HostFactory, tmp_path: Path):
    """Another connection counts the records right after each call."""
    async with make_host({"c": counter_entry()}, durable=True) as host, host.session(cwd=tmp_path) as session:
        with closing(sqlite3.connect(tmp_path / "data" / DATABASE_FILE, timeout=10)) as other:

            def on_disk() -> int:
                return other.execute("SELECT count(*) FROM audit").fetchone()[0]

            before = on_disk()
            seen: list[int] = []
            for name in ("c.count", "c.fail", "c.nothing", "c.die", "c.count"):
                await session.call(name)
                seen.append(on_disk() - before)

    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.promise("AUD-01")
async def test_every_commit_has_the_end_of_a_call_together_with_its_record(
    make_host: HostFactory, tmp_path: Path
):
    counts: list[tuple[int, int]] = []

    def count(tx: ReadTx) -> None:
        rows = [decode_record(row.body) for row in tx.audit_rows()]
        ended = [
            stored for stored in tx.events(session.context.session_id) if isinstance(stored.event, ToolEnded)
        ]
        counts.append((sum(row.kind is AuditKind.CALL for row in rows), len(ended)))

    async with make_host({"c": counter_entry()}, durable=True) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        host.store.after_commit(count)
        await asyncio.gather(*(session.call("c.count") for _ in range(50)))
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    assert [(records, ends) for records, ends in counts if records != ends] == []
    begun = {event.call_id for event in events if isinstance(event, ToolCalled)}
    assert begun == {event.call_id for event in events if isinstance(event, ToolEnded)}
    assert len(begun) == 50
