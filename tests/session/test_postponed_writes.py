"""Writes that a full disk delays: each call still gets one end and one record once there is space."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.record import AuditKind
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import (
    Decision,
    PermissionDecided,
    SessionClosed,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.permission import Mode
from holdfast.session.call_record import CallRecord
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.session import Session
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.journeys.conftest import cwd, home
from tests.session.support import ScriptedUser, audit_records, failing_host
from tests.store.disks import FailingDisk, small_disk
from tests.store.sessions import raises_code

__all__ = ["cwd", "home", "make_host", "small_disk"]
pytestmark = pytest.mark.anyio

Steps = ToolCalled | PermissionDecided | ToolStarted | ToolEnded


async def event_names(host: Host, session: Session) -> list[str]:
    events = [stored.event async for stored in host.store.events(session.context.session_id)]
    return [type(event).__name__ for event in events if isinstance(event, Steps)]


async def fill_during(
    disk: FailingDisk, session: Session, name: str, arguments: Any, *, full: bool = False
) -> None:
    """Make a call; the disk fills up while it runs."""
    if full:
        disk.fails_with = 0
    running = asyncio.create_task(session.call(name, arguments))
    while not await _has_started(session):
        await asyncio.sleep(0.01)
    disk.fails_with = sqlite3.SQLITE_FULL
    with raises_code(codes.RESULT_NOT_STORED):
        await running


@pytest.mark.promise("AUD-01")
async def test_session_that_could_not_be_opened_is_deleted_once_there_is_space(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing_host(make_host, tmp_path) as (host, disk):
        open_session = Session.open

        async def open_on_a_full_disk(session: Session, first: OpeningEvents, *, stored_seq: int) -> None:
            disk.fails_with = sqlite3.SQLITE_FULL
            await open_session(session, first, stored_seq=None)  # stores the first events again

        monkeypatch.setattr(Session, "open", open_on_a_full_disk)
        with raises_code(codes.STORE_FULL):
            await host.open(OpenOptions(cwd=tmp_path))
        before = (await host.store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items
        disk.fails_with = 0
        await host.store.write(lambda tx: None)
        after = (await host.store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items

    assert (len(before), after) == (1, ())


async def _has_started(session: Session) -> bool:
    store = session.record._store  # pyright: ignore[reportPrivateUsage]
    return any([isinstance(one.event, ToolStarted) async for one in store.events(session.context.session_id)])


async def add_start_without_waiting(self: CallRecord, tool_call: ToolCall) -> None:
    await self._appender.append(ToolStarted(call_id=tool_call.call_id))


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("waits", [True, False])
async def test_call_that_cannot_be_recorded_is_not_made(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The control does not wait for the disk, so there the server gets the call."""
    if not waits:
        monkeypatch.setattr(CallRecord, "add_start", add_start_without_waiting)
    async with failing_host(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        disk.fails_with = sqlite3.SQLITE_FULL
        with raises_code(codes.STORE_FULL if waits else codes.RESULT_NOT_STORED):
            await session.call("c.count")
        disk.fails_with = 0
        result = await session.call("c.count")
        records = [(record.outcome, record.reason) for record in await audit_records(host, AuditKind.CALL)]

    if waits:
        assert result.text == "2"
        assert records == [("completed", ""), ("refused", "STORE_FULL"), ("completed", "")]
    else:
        assert result.text == "3"


@pytest.mark.promise("AUD-01")
async def test_records_of_a_session_closed_on_a_full_disk_are_written_with_the_next_write(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing_host(make_host, tmp_path) as (host, disk):
        session = await host.open(OpenOptions(cwd=tmp_path))
        await session.wait_ready_and_store()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.3})
        await session.close()
        before = await audit_records(host, AuditKind.CALL)
        disk.fails_with = 0
        other = await host.open(OpenOptions(cwd=tmp_path))  # postponed writes go first
        records = [(record.tool, record.outcome) for record in await audit_records(host, AuditKind.CALL)]
        event_types = await event_names(host, session)
        *_, last = [stored.event async for stored in host.store.events(session.context.session_id)]
        lease = await host.store.read(lambda tx: tx.lease(session.context.session_id))
        await other.close()
        good = await host.store.read(lambda tx: [*tx.audit_rows()])

    assert (before, records) == ([], [("sleep", "completed")])
    assert event_types == ["ToolCalled", "ToolStarted", "ToolEnded"]
    assert isinstance(last, SessionClosed)
    assert (lease, [row.seq for row in good]) == (None, [*range(1, len(good) + 1)])


@pytest.mark.promise("AUD-01")
async def test_postponed_writes_are_retried_even_without_another_write(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.writer._RETRY_SECONDS", 0.1)
    async with failing_host(make_host, tmp_path) as (host, disk):
        session, other = [await host.open(OpenOptions(cwd=tmp_path)) for _ in range(2)]
        for one in (session, other):
            await one.wait_ready_and_store()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.2})
        await fill_during(disk, other, "c.sleep", {"seconds": 0.2}, full=True)
        await other.close()
        disk.fails_with = 0
        async with asyncio.timeout(10):
            while len(records := await audit_records(host, AuditKind.CALL)) < 2:
                await asyncio.sleep(0.02)
        await session.close()
        last = await audit_records(host, AuditKind.CALL)

    assert [record.outcome for record in records] == ["completed", "completed"]
    assert last == records


@pytest.mark.promise("AUD-01")
async def test_unknown_tools_called_on_a_full_disk_use_limited_memory_and_displace_no_other_records(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.audit._MAX_POSTPONED", 3)
    async with failing_host(make_host, tmp_path) as (host, disk):
        session = await host.open(OpenOptions(cwd=tmp_path))
        await session.wait_ready_and_store()
        running = asyncio.create_task(session.call("c.sleep", {"seconds": 0.5}))
        while not await _has_started(session):
            await asyncio.sleep(0.01)
        disk.fails_with = sqlite3.SQLITE_FULL
        for _ in range(10):
            with raises_code(codes.STORE_FULL):
                await session.call("c.nothing" * 1000)
        with raises_code(codes.RESULT_NOT_STORED):
            await running
        await session.close()
        disk.fails_with = 0
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))
        await again.close()
        records = await audit_records(host, AuditKind.CALL, AuditKind.DENIED)

    assert [record.kind for record in records] == [*[AuditKind.DENIED] * 3, AuditKind.CALL]


@pytest.mark.promise("STO-04", "AUD-01")
async def test_host_closed_on_a_full_disk_keeps_no_lease_in_its_own_process(
    make_host: HostFactory, tmp_path: Path
) -> None:
    disk = FailingDisk()
    made = make_host({})
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=made.settings, servers={"c": counter_entry()}, store=store) as host,
    ):
        session = await host.open(OpenOptions(cwd=tmp_path))
        await session.wait_ready_and_store()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.2})
    async with (
        SqliteStore(tmp_path / "holdfast.db") as store,
        Host(settings=made.settings, store=store) as host,
    ):
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))
        records = await audit_records(host, AuditKind.CALL)
        await again.close()

    assert [record.reason for record in records] == ["INTERRUPTED"]


@pytest.mark.promise("AUD-01")
async def test_decision_made_while_the_disk_filled_up_is_recorded_when_there_is_space(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing_host(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:

        class FillsTheDisk(ScriptedUser):
            async def request_permission(self, question: PermissionQuestion) -> Decision:
                disk.fails_with = sqlite3.SQLITE_FULL
                return await super().request_permission(question)

        session.attach(FillsTheDisk(Decision.ALLOW_ONCE))
        session.permission.mode = Mode.ASK
        with raises_code(codes.STORE_FULL):
            await session.prompt(({"type": "text", "text": "/call c.count {}"},))
        disk.fails_with = 0
        session.permission.mode = Mode.AUTO
        result = await session.call("c.count")
        records = await audit_records(host, AuditKind.CALL, AuditKind.PERMISSION)
        event_types = await event_names(host, session)

    assert result.text == "1"
    assert [(record.kind, record.outcome) for record in records] == [
        (AuditKind.PERMISSION, "allow_once"),
        (AuditKind.CALL, "refused"),
        (AuditKind.CALL, "completed"),
    ]
    assert event_types[:3] == ["ToolCalled", "PermissionDecided", "ToolEnded"]
    assert {record.arguments_hash for record in records} == {
        ArgumentHasher(host.settings.data_dir / KEYS_FOLDER)(b"{}")
    }


@pytest.mark.promise("AUD-01")
async def test_call_of_an_unknown_tool_on_a_full_disk_is_recorded_when_there_is_space(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing_host(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        disk.fails_with = sqlite3.SQLITE_FULL
        with raises_code(codes.STORE_FULL):
            await session.call("c.nothing")
        disk.fails_with = 0
        await session.call("c.count")
        records = await audit_records(host, AuditKind.DENIED, AuditKind.CALL)

    assert [(record.kind, record.tool) for record in records] == [
        (AuditKind.DENIED, "c.nothing"),
        (AuditKind.CALL, "count"),
    ]
