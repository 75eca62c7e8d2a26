"""Closing a session ends its calls first; nothing is written to it afterwards."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind
from holdfast.host.open_options import OpenOptions
from holdfast.host.server_config import ServerConfigs
from holdfast.model import codes
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import Decision, Replied, SessionClosed, ToolEnded
from holdfast.model.permission import Mode
from holdfast.session.server_tools import ServerTools
from holdfast.toolkit import Toolbox
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import ScriptedUser, audit_records, failing_host
from tests.store.sessions import raises_code

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("what", ["a call over a shared link", "a call that waits for permission"])
async def test_running_call_ends_with_its_session_and_only_once(
    make_host: HostFactory, tmp_path: Path, what: str
) -> None:
    servers = {"c": counter_entry("--shared", lifetime="host")}
    async with make_host(servers) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        await session.wait_ready_and_store()
        running = asyncio.Event()

        class SilentUser(ScriptedUser):
            async def request_permission(self, question: PermissionQuestion) -> Decision:
                running.set()
                return await asyncio.Future()

        session.attach(SilentUser())
        if what != "a call over a shared link":
            session.permission.mode = Mode.ASK
        task = asyncio.create_task(session.call("c.linger", on_progress=lambda _: running.set()))
        await running.wait()
        await session.close()
        result = await task
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))
        await again.close()
        records = await audit_records(host, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    (ended,) = [index for index, event in enumerate(events) if isinstance(event, ToolEnded)]
    assert (result.outcome, result.code) == ("cancelled", "SCOPE_CLOSED")
    assert isinstance(events[ended + 1], SessionClosed)
    assert [(record.outcome, record.reason) for record in records] == [("cancelled", "SCOPE_CLOSED")]


@pytest.mark.parametrize("where", ["a process", "this process"])
async def test_running_call_of_a_sessions_own_server_returns_that_the_session_was_closed(
    make_host: HostFactory, tmp_path: Path, where: str
) -> None:
    box, running = Toolbox("box"), asyncio.Semaphore(0)

    @box.tool()
    async def linger() -> None:  # pyright: ignore[reportUnusedFunction]
        """Never answer."""
        running.release()
        await asyncio.Future()

    servers: ServerConfigs = {"box": box}
    async with make_host({"c": counter_entry()}, durable=True) as host:
        async with host.session(cwd=tmp_path, servers=servers) as session:
            name = "c.linger" if where == "a process" else "box.linger"
            calls = [session.call(name, on_progress=lambda _: running.release()) for _ in range(4)]
            tasks = [asyncio.create_task(call) for call in calls]
            for _ in tasks:
                await running.acquire()
        results = await asyncio.gather(*tasks)
        records = await audit_records(host, AuditKind.CALL)
        events = [stored.event async for stored in session.subscribe()]

    message = f"The session was closed before {name} answered. The call may have taken effect."
    assert {(result.outcome, result.code, result.message) for result in results} == {
        ("cancelled", "SCOPE_CLOSED", message)
    }
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["cancelled"] * 4
    assert [(record.outcome, record.reason) for record in records] == [("cancelled", "SCOPE_CLOSED")] * 4


async def test_nothing_is_written_to_a_closed_session(make_host: HostFactory, tmp_path: Path) -> None:
    async with make_host({"c": counter_entry()}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        await session.close()
        with raises_code(codes.SCOPE_CLOSED):
            await session.record.add(Replied(message_id="m", text="late"))
        with raises_code(codes.SCOPE_CLOSED):
            await session.call("c.count")


async def test_open_session_is_not_deleted(make_host: HostFactory, tmp_path: Path) -> None:
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        with raises_code(codes.SESSION_HELD):
            await host.delete_session(session.context.session_id)
        assert await host.store.session(session.context.session_id)


async def test_server_listed_while_the_disk_was_full_becomes_available_when_there_is_space(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.session.server_tools._RETRY_SECONDS", 0.2)
    list_once = ServerTools._list_once  # pyright: ignore[reportPrivateUsage]
    async with failing_host(make_host, tmp_path) as (host, disk):

        async def on_a_full_disk(tools: ServerTools) -> None:
            if tools.spec.name == "c":
                disk.fails_with = sqlite3.SQLITE_FULL
                await list_once(tools)
                disk.fails_with = 0
            else:
                await list_once(tools)

        with monkeypatch.context() as patched:
            patched.setattr(ServerTools, "_list_once", on_a_full_disk)
            session = await host.open(OpenOptions(cwd=tmp_path))
            await session.wait_ready()
        refusals = [refusal.server for refusal in session.refusals]
        async with asyncio.timeout(20):
            while "c" not in session.available:
                await asyncio.sleep(0.05)
        result = await session.call("c.count")
        await session.close()

    assert (refusals, result.text) == (["c"], "1")
