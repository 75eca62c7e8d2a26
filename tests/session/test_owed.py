"""A call is known before it is made: whatever the disk does then, it has one end and one record once there is space."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.manual import Manual
from holdfast.audit.record import AuditKind, hash_arguments
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.event import (
    Decision,
    PermissionDecided,
    SessionClosed,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.session.record import Record
from holdfast.session.session import Session
from holdfast.session.turn import Conversation
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.sqlite import SqliteStore
from tests.connect.conftest import HostFactory, counter, make_host
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import Editor, editor, environment, tools
from tests.session.test_audited import Person, notes
from tests.session.test_full_disk import prompt_until_full
from tests.store.disks import Ballast, Failing, small_disk
from tests.store.sessions import refused

__all__ = ["cwd", "home", "make_host", "small_disk"]
pytestmark = pytest.mark.anyio

Steps = ToolCalled | PermissionDecided | ToolStarted | ToolEnded


@asynccontextmanager
async def failing(make_host: HostFactory, tmp_path: Path) -> AsyncIterator[tuple[Host, Failing]]:
    """A host whose disk can be made to be full."""
    disk = Failing()
    made = make_host({})
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=made.settings, servers={"c": counter()}, store=store) as host,
    ):
        yield host, disk
        disk.fails_with = 0


async def steps(host: Host, session: Session) -> list[str]:
    events = [stored.event async for stored in host.store.events(session.context.session_id)]
    return [type(event).__name__ for event in events if isinstance(event, Steps)]


async def fill_during(
    disk: Failing, session: Session, name: str, arguments: Any, *, full: bool = False
) -> None:
    """Make a call; while it runs, the disk fills up."""
    if full:
        disk.fails_with = 0
    running = asyncio.create_task(session.call(name, arguments))
    while not await _runs(session):
        await asyncio.sleep(0.01)
    disk.fails_with = sqlite3.SQLITE_FULL
    with refused(codes.STORE_FULL):
        await running


@pytest.mark.promise("AUD-01")
async def test_a_session_that_could_not_be_opened_is_gone_once_there_is_space(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing(make_host, tmp_path) as (host, disk):
        opens = Session.open

        async def fills_up(session: Session) -> None:
            disk.fails_with = sqlite3.SQLITE_FULL
            await opens(session)

        monkeypatch.setattr(Session, "open", fills_up)
        with refused(codes.STORE_FULL):
            await host.open(Opening(cwd=tmp_path))
        held = (await host.store.sessions(SessionQuery(reach=OPERATOR))).items
        disk.fails_with = 0
        await host.store.write(lambda tx: None)
        left = (await host.store.sessions(SessionQuery(reach=OPERATOR))).items

    assert (len(held), left) == (1, ())


async def _runs(session: Session) -> bool:
    store = session.record._store  # pyright: ignore[reportPrivateUsage]
    return any([isinstance(one.event, ToolStarted) async for one in store.events(session.context.session_id)])


async def not_waiting(self: Record, asked: ToolCall) -> None:
    await self.stream(ToolStarted(call_id=asked.call_id))


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_that_cannot_be_recorded_is_not_made(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The control does not wait for the disk: there the server counts on."""
    if not waits:
        monkeypatch.setattr(Record, "started", not_waiting)
    async with failing(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        await session.call("c.count")
        disk.fails_with = sqlite3.SQLITE_FULL
        with refused(codes.STORE_FULL):
            await session.call("c.count")
        disk.fails_with = 0
        answer = await session.call("c.count")
        kept = [(note.outcome, note.reason) for note in await notes(host, AuditKind.CALL)]

    if waits:
        assert answer.text == "2"
        assert kept == [("completed", ""), ("refused", "STORE_FULL"), ("completed", "")]
    else:
        assert answer.text == "3"


@pytest.mark.promise("AUD-01")
async def test_a_session_that_is_closed_on_a_full_disk_has_its_records_when_another_has_space(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing(make_host, tmp_path) as (host, disk):
        session = await host.open(Opening(cwd=tmp_path))
        await session.settle()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.3})
        await host.close_session(session)
        before = await notes(host, AuditKind.CALL)
        disk.fails_with = 0
        other = await host.open(Opening(cwd=tmp_path))  # the next that is written takes it along
        kept = [(note.tool, note.outcome) for note in await notes(host, AuditKind.CALL)]
        taken = await steps(host, session)
        *_, last = [stored.event async for stored in host.store.events(session.context.session_id)]
        lease = await host.store.read(lambda reads: reads.lease(session.context.session_id))
        await host.close_session(other)
        good = await host.store.read(lambda reads: [*reads.audit_rows()])

    assert (before, kept) == ([], [("sleep", "completed")])
    assert taken == ["ToolCalled", "ToolStarted", "ToolEnded"]
    assert isinstance(last, SessionClosed)
    assert (lease, [row.seq for row in good]) == (None, [*range(1, len(good) + 1)])


@pytest.mark.promise("AUD-01")
async def test_what_is_owed_is_written_by_itself_though_nobody_writes_anything_else(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.writer._RETRY_SECONDS", 0.1)
    async with failing(make_host, tmp_path) as (host, disk):
        session, other = [await host.open(Opening(cwd=tmp_path)) for _ in range(2)]
        for one in (session, other):
            await one.settle()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.2})
        await fill_during(disk, other, "c.sleep", {"seconds": 0.2}, full=True)
        await host.close_session(other)
        disk.fails_with = 0
        async with asyncio.timeout(10):
            while len(kept := await notes(host, AuditKind.CALL)) < 2:
                await asyncio.sleep(0.02)
        await host.close_session(session)
        last = await notes(host, AuditKind.CALL)

    assert [note.outcome for note in kept] == ["completed", "completed"]
    assert last == kept


@pytest.mark.promise("AUD-01")
async def test_who_asks_in_vain_on_a_full_disk_does_not_fill_the_memory_nor_crowd_out_what_was_done(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.audit._MOST_OWED", 3)
    async with failing(make_host, tmp_path) as (host, disk):
        session = await host.open(Opening(cwd=tmp_path))
        await session.settle()
        running = asyncio.create_task(session.call("c.sleep", {"seconds": 0.5}))
        while not await _runs(session):
            await asyncio.sleep(0.01)
        disk.fails_with = sqlite3.SQLITE_FULL
        for _ in range(10):
            with refused(codes.STORE_FULL):
                await session.call("c.nothing" * 1000)
        with refused(codes.STORE_FULL):
            await running
        await host.close_session(session)
        disk.fails_with = 0
        again = await host.reopen(session.context.session_id, Opening(cwd=tmp_path))
        await host.close_session(again)
        kept = await notes(host, AuditKind.CALL, AuditKind.DENIED)

    assert [note.kind for note in kept] == [*[AuditKind.DENIED] * 3, AuditKind.CALL]


@pytest.mark.promise("STO-04", "AUD-01")
async def test_a_host_that_was_closed_on_a_full_disk_holds_nothing_in_its_own_process_either(
    make_host: HostFactory, tmp_path: Path
) -> None:
    disk = Failing()
    made = make_host({})
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=made.settings, servers={"c": counter()}, store=store) as host,
    ):
        session = await host.open(Opening(cwd=tmp_path))
        await session.settle()
        await fill_during(disk, session, "c.sleep", {"seconds": 0.2})
    async with (
        SqliteStore(tmp_path / "holdfast.db") as store,
        Host(settings=made.settings, store=store) as host,
    ):
        again = await host.reopen(session.context.session_id, Opening(cwd=tmp_path))
        kept = await notes(host, AuditKind.CALL)
        await host.close_session(again)

    assert [note.reason for note in kept] == ["INTERRUPTED"]


@pytest.mark.promise("AUD-01")
async def test_a_decision_that_was_made_while_the_disk_filled_up_is_recorded_when_there_is_space(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:

        class Slow(Person):
            async def permit(self, call: ToolCall, title: str) -> Decision:
                disk.fails_with = sqlite3.SQLITE_FULL
                return await super().permit(call, title)

        conversation = Conversation(session, Manual(), Slow(Decision.ALLOW_ONCE))
        with refused(codes.STORE_FULL):
            await conversation.prompt(({"type": "text", "text": "/call c.count {}"},))
        disk.fails_with = 0
        answer = await session.call("c.count")
        kept = await notes(host, AuditKind.CALL, AuditKind.PERMISSION)
        taken = await steps(host, session)

    assert answer.text == "1"
    assert [(note.kind, note.outcome) for note in kept] == [
        (AuditKind.PERMISSION, "allow_once"),
        (AuditKind.CALL, "refused"),
        (AuditKind.CALL, "completed"),
    ]
    assert taken[:3] == ["ToolCalled", "PermissionDecided", "ToolEnded"]
    assert {note.arguments_hash for note in kept} == {hash_arguments(b"{}")}


@pytest.mark.promise("AUD-01")
async def test_an_attempt_that_was_denied_on_a_full_disk_is_recorded_when_there_is_space(
    make_host: HostFactory, tmp_path: Path
) -> None:
    async with failing(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        disk.fails_with = sqlite3.SQLITE_FULL
        with refused(codes.STORE_FULL):
            await session.call("c.nothing")
        disk.fails_with = 0
        await session.call("c.count")
        kept = await notes(host, AuditKind.DENIED, AuditKind.CALL)

    assert [(note.kind, note.tool) for note in kept] == [
        (AuditKind.DENIED, "c.nothing"),
        (AuditKind.CALL, "count"),
    ]


# Through the door


async def waiting(zed: Editor, cwd: Path) -> tuple[str, "asyncio.Future[Any]"]:
    """A session in which a call runs that does not end by itself."""
    started = cwd / "started"
    session = await zed.new(cwd, tools())
    prompt = zed.begin_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
    while not started.exists():
        await asyncio.sleep(0.01)
    return session, prompt


async def killed(home: Path, cwd: Path) -> str:
    """A session whose process was killed in the midst of a call."""
    async with editor(home) as zed:
        session, prompt = await waiting(zed, cwd)
        zed.process.kill()
        await asyncio.wait([prompt])
        prompt.exception()
        await zed.gone()
    return session


def holdfast(home: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True,
        text=True,
        env=environment(home, environ),
        check=False,
    )


def calls_of(home: Path, session: str, **environ: str) -> list[tuple[str, str, str]]:
    said = holdfast(home, "audit", "list", "--json", "--session", session, **environ).stdout
    records = [json.loads(line)["record"] for line in said.splitlines()]
    return [(one["tool"], one["outcome"], one["reason"]) for one in records if one["kind"] == "call"]


INTERRUPTED = [("wait", "cancelled", "INTERRUPTED")]


@pytest.mark.promise("AUD-01", "STO-03")
async def test_what_a_kill_cut_off_is_recorded_by_the_next_process_though_nobody_opens_the_session(
    home: Path, cwd: Path
) -> None:
    session = await killed(home, cwd)
    before = calls_of(home, session)
    async with editor(home):
        async with asyncio.timeout(20):
            while not (kept := calls_of(home, session)):
                await asyncio.sleep(0.1)
    async with editor(home) as zed:
        await zed.load(session, cwd)
        told = zed.said(session)
        reason = await zed.prompt(session, "/help")

    assert (before, kept, calls_of(home, session)) == ([], INTERRUPTED, INTERRUPTED)
    assert ("This turn was interrupted" in told, reason) == (True, "end_turn")
    assert holdfast(home, "audit", "verify").returncode == 0


@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("change", ["delete", "move"])
async def test_a_session_that_was_cut_off_is_recorded_before_it_is_changed(
    home: Path, cwd: Path, tmp_path: Path, change: str
) -> None:
    session = await killed(home, cwd)
    more = ["--yes"] if change == "delete" else [str(tmp_path)]
    done = holdfast(home, "sessions", change, session, *more)

    assert (done.returncode, calls_of(home, session)) == (0, INTERRUPTED), done.stderr
    assert holdfast(home, "audit", "verify").returncode == 0


@pytest.mark.promise("AUD-01", "ACP-10")
async def test_an_editor_that_deletes_a_session_that_was_cut_off_does_not_delete_what_is_known_of_it(
    home: Path, cwd: Path
) -> None:
    session = await killed(home, cwd)
    async with editor(home) as zed:
        await zed.ask("session/delete", {"sessionId": session})

    assert calls_of(home, session) == INTERRUPTED


@pytest.mark.promise("AUD-01", "STO-03")
async def test_a_process_that_ends_on_a_full_disk_leaves_what_the_next_one_records(
    home: Path, cwd: Path, small_disk: Path
) -> None:
    ballast, environ = Ballast(small_disk), {"HOLDFAST_DATA_DIR": str(small_disk)}
    async with editor(home, environ=environ) as zed:
        session, prompt = await waiting(zed, cwd)
        other = await zed.new(cwd)
        ballast.take_all()
        await prompt_until_full(zed, other)
        code = await zed.leave()
        await asyncio.wait([prompt])
        prompt.exception()
    listed = holdfast(home, "sessions", "list", "--json", **environ).stdout
    before = calls_of(home, session, **environ)
    ballast.drop()
    async with editor(home, environ=environ), asyncio.timeout(20):
        while not (kept := calls_of(home, session, **environ)):
            await asyncio.sleep(0.1)

    assert (code, session in listed, before, kept) == (0, True, [], INTERRUPTED)
    assert holdfast(home, "audit", "verify", **environ).returncode == 0
