"""A disk that is full fails what is on its way, and nothing for good: with space, the same session goes on."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from holdfast.audit.record import AuditKind
from holdfast.host import DATABASE, Host, Opening
from holdfast.model import codes
from holdfast.model.event import Event, Outcome, Prompted, SessionClosed, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check
from tests.connect.conftest import HostFactory, counter, make_host
from tests.journeys.editor import Editor, Refused, editor, tools
from tests.session.test_audited import notes
from tests.store.disks import Ballast, Failing, small_disk
from tests.store.sessions import refused

__all__ = ["make_host", "small_disk"]
pytestmark = pytest.mark.anyio

LONG = "x" * 200_000


async def prompt_until_full(zed: Editor, session: str) -> Refused:
    while True:
        try:
            await zed.prompt(session, LONG)
        except Refused as full:
            return full


async def log_of(path: Path, session: str) -> list[Event]:
    async with SqliteStore(path) as store:
        return [stored.event async for stored in store.events(SessionId(session))]


@pytest.mark.promise("STO-01", "STO-03")
async def test_an_editors_session_goes_on_when_there_is_space_again(tmp_path: Path, small_disk: Path) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, '/call tools.echo {"text": "before"}')
        ballast.take_all()
        full = await prompt_until_full(zed, session)
        with pytest.raises(Refused) as again:
            await zed.prompt(session, LONG)
        ballast.drop()
        reason = await zed.prompt(session, '/call tools.echo {"text": "after"}')
        last = zed.called(session)[-1][1]

    assert "No space is left to write" in full.message
    assert "Free some space on that disk, then try again" in full.message
    assert "No space is left" in again.value.message
    assert (reason, last, "after" in zed.said(session)) == ("end_turn", "completed", True)
    events = await log_of(small_disk / DATABASE, session)
    begun = [event.turn_id for event in events if isinstance(event, Prompted)]
    ended = [event.turn_id for event in events if isinstance(event, TurnEnded)]
    assert begun == ended
    assert isinstance(events[-1], SessionClosed)
    assert check(small_disk / DATABASE).problems == ()


async def test_an_editor_that_was_started_on_a_full_disk_gets_its_session_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    ballast.take_all()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        with pytest.raises(Refused) as full:
            await zed.new(cwd)
        ballast.drop()
        session = await zed.new(cwd)
        reason = await zed.prompt(session, "/help")

    assert "No space is left to write" in full.value.message
    assert reason == "end_turn"


@pytest.mark.promise("ACP-09", "STO-01")
async def test_a_call_whose_end_could_not_be_stored_is_told_step_by_step_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    started = cwd / "started"
    wait = {"started": str(started), "seconds": 2}
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session, other = await zed.new(cwd, tools()), await zed.new(cwd, tools())
        running = zed.begin_prompt(session, f"/call tools.wait {json.dumps(wait)}")
        await zed.until(lambda zed: len(zed.called(session)) == 2)
        while not started.exists():
            await asyncio.sleep(0.01)
        ballast.take_all()
        await prompt_until_full(zed, other)
        with pytest.raises(Refused):
            await zed.prompt(other, '/call tools.echo {"text": "not made"}')
        with pytest.raises(Refused) as full:
            await running
        while_full = [status for _, status in zed.called(session)]
        ballast.drop()
        reason = await zed.prompt(session, "/help")
        steps = [status for _, status in zed.called(session)]
        (last,) = [one for one in zed.updates(session, "tool_call_update") if one["status"] == "completed"]

    assert "No space is left to write" in full.value.message
    assert full.value.data["sessionId"] == session
    assert (while_full, reason) == (["pending", "in_progress"], "end_turn")
    assert steps == ["pending", "in_progress", "completed"]
    assert "was not kept" in last["content"][0]["content"]["text"]


@pytest.mark.promise("STO-04")
async def test_a_session_is_closed_on_a_full_disk_and_can_be_taken_up_again_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, "/call tools.whoami")
        (who,) = [
            step["rawOutput"] for step in zed.updates(session, "tool_call_update") if "rawOutput" in step
        ]
        ballast.take_all()
        await prompt_until_full(zed, session)
        closed = await zed.ask("session/close", {"sessionId": session})
        server_is_gone = not Path(f"/proc/{who['pid']}").exists()
        ballast.drop()
        async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as other:
            await zed.load(session, cwd)
            await zed.ask("session/close", {"sessionId": session})
            await other.load(session, cwd)
            reason = await other.prompt(session, "/help")

    assert (closed, server_is_gone, reason) == ({}, True, "end_turn")


@pytest.mark.parametrize("again", [True, False])
async def test_trust_that_was_lowered_on_a_full_disk_is_stored_when_there_is_space(
    make_host: HostFactory, tmp_path: Path, again: bool
) -> None:
    """When it is lowered once more, and when the session is closed at the latest."""
    disk = Failing()
    store = SqliteStore(tmp_path / "holdfast.db", connect=disk.open)
    async with store, Host(settings=make_host({}).settings, store=store) as host:
        session = await host.open(Opening(cwd=tmp_path))
        disk.fails_with = sqlite3.SQLITE_FULL
        with refused(codes.STORE_FULL):
            await session.lower_trust()
        disk.fails_with = 0
        if again:
            await session.lower_trust()
        else:
            await host.close_session(session)
        stored = await store.session(session.context.session_id)

    assert stored is not None
    assert (stored.context.trust_level, session.context.trust_level) == (Trust.SANDBOXED, Trust.SANDBOXED)


@pytest.mark.promise("AUD-01")
async def test_each_call_that_was_made_has_one_end_and_one_record_once_there_is_space(
    make_host: HostFactory, tmp_path: Path, small_disk: Path
) -> None:
    ballast, heard = Ballast(small_disk), list[Event]()

    async def hear(event: Event) -> None:
        heard.append(event)

    host = make_host({"c": counter()}, durable=True, HOLDFAST_DATA_DIR=str(small_disk))
    async with host, host.session(cwd=tmp_path) as session:
        session.record.listen(hear)
        slow = asyncio.create_task(session.call("c.sleep", {"seconds": 1}))
        await session.call("c.count")
        ballast.take_all()
        with refused(codes.STORE_FULL):
            while True:
                await asyncio.gather(*(session.call("c.count", {"text": LONG}) for _ in range(3)))
        ballast.drop()
        answer, slept = await session.call("c.count"), await slow
        await session.record.told()
        kept = await notes(host, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    begun = [event.call_id for event in events if isinstance(event, ToolCalled)]
    ended = [event.call_id for event in events if isinstance(event, ToolEnded)]
    assert (answer.ok, slept.ok) == (True, True)
    assert sorted(begun) == sorted(ended)
    ids = [note.call_id for note in kept]
    assert len(ids) == len({*ids, *begun})  # each that was begun has one record
    assert {note.outcome for note in kept if note.call_id not in begun} <= {Outcome.REFUSED}
    made = [note for note in kept if note.outcome != Outcome.REFUSED]
    assert sum(note.tool == "count" for note in made) == int(answer.text)  # as many as the server has counted
    assert [event for event in events if isinstance(event, ToolCalled | ToolEnded)] == [
        event for event in heard if isinstance(event, ToolCalled | ToolEnded)
    ]
