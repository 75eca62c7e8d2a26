"""A full disk fails the writes in flight, and nothing else: with space again, the same session works."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.audit.record import AuditKind
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Event,
    Outcome,
    Prompted,
    SessionClosed,
    StopReason,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from holdfast.store.maintenance import check
from holdfast.store.sqlite import SqliteStore
from holdfast.toolkit import Toolbox
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.journeys.editor import RpcError, editor, tools_server
from tests.session.support import (
    LONG,
    WaitingAgent,
    Watcher,
    audit_records,
    failing_host,
    prompt_until_full,
    text_prompt,
)
from tests.store.disks import Ballast, FailingDisk, small_disk
from tests.store.sessions import raises_code

__all__ = ["make_host", "small_disk"]
pytestmark = pytest.mark.anyio


async def read_events(path: Path, session: str) -> list[Event]:
    async with SqliteStore(path) as store:
        return [stored.event async for stored in store.events(SessionId(session))]


async def call_until_full(session: Session) -> HoldfastError:
    while True:
        try:
            await asyncio.gather(*(session.call("c.count", {"text": LONG}) for _ in range(3)))
        except HoldfastError as full:
            return full


@pytest.mark.slow
@pytest.mark.promise("STO-01", "STO-03")
async def test_session_of_an_editor_works_again_when_there_is_space(tmp_path: Path, small_disk: Path) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, '/call tools.echo {"text": "before"}')
        ballast.take_all()
        full = await prompt_until_full(zed, session)
        with pytest.raises(RpcError) as again:
            await zed.prompt(session, LONG)
        ballast.drop()
        reason = await zed.prompt(session, '/call tools.echo {"text": "after"}')
        last = zed.call_statuses(session)[-1][1]

    assert "No space is left to write" in full.message
    assert "No space is left" in again.value.message
    assert (reason, last, "after" in zed.reply_text(session)) == ("end_turn", "completed", True)
    events = await read_events(small_disk / DATABASE_FILE, session)
    begun = [event.turn_id for event in events if isinstance(event, Prompted)]
    ended = [event.turn_id for event in events if isinstance(event, TurnEnded)]
    assert begun == ended
    assert isinstance(events[-1], SessionClosed)
    assert check(small_disk / DATABASE_FILE).problems == ()


async def test_editor_started_on_a_full_disk_gets_its_session_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    ballast.take_all()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        with pytest.raises(RpcError) as full:
            await zed.new(cwd)
        ballast.drop()
        session = await zed.new(cwd)
        reason = await zed.prompt(session, "/help")

    assert "No space is left to write" in full.value.message
    assert reason == "end_turn"


@pytest.mark.promise("ACP-09", "STO-01")
async def test_end_of_a_call_that_could_not_be_stored_is_sent_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    started = cwd / "started"
    wait = {"started": str(started), "seconds": 2}
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session, other = await zed.new(cwd, tools_server()), await zed.new(cwd, tools_server())
        running = zed.start_prompt(session, f"/call tools.wait {json.dumps(wait)}")
        await zed.wait_until(lambda zed: len(zed.call_statuses(session)) == 2)
        while not started.exists():
            await asyncio.sleep(0.01)
        ballast.take_all()
        await prompt_until_full(zed, other)
        with pytest.raises(RpcError):
            await zed.prompt(other, '/call tools.echo {"text": "not made"}')
        with pytest.raises(RpcError) as full:
            await running
        while_full = [status for _, status in zed.call_statuses(session)]
        ballast.drop()
        reason = await zed.prompt(session, "/help")
        steps = [status for _, status in zed.call_statuses(session)]
        (last,) = [one for one in zed.updates(session, "tool_call_update") if one["status"] == "completed"]

    assert full.value.message.startswith(
        "tools.wait was called and completed, but its result could not be stored"
    )
    assert full.value.data["sessionId"] == session
    assert (while_full, reason) == (["pending", "in_progress"], "end_turn")
    assert steps == ["pending", "in_progress", "completed"]
    assert "was not kept" in last["content"][0]["content"]["text"]


@pytest.mark.slow
@pytest.mark.promise("STO-04")
async def test_session_closed_on_a_full_disk_can_be_loaded_when_there_is_space(
    tmp_path: Path, small_disk: Path
) -> None:
    home, cwd, ballast = tmp_path / "home", tmp_path / "project", Ballast(small_disk)
    home.mkdir()
    cwd.mkdir()
    async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, "/call tools.whoami")
        (who,) = [
            step["rawOutput"] for step in zed.updates(session, "tool_call_update") if "rawOutput" in step
        ]
        ballast.take_all()
        await prompt_until_full(zed, session)
        closed = await zed.request("session/close", {"sessionId": session})
        server_is_gone = not Path(f"/proc/{who['pid']}").exists()
        ballast.drop()
        async with editor(home, environ={"HOLDFAST_DATA_DIR": str(small_disk)}) as other:
            await zed.load(session, cwd)
            await zed.request("session/close", {"sessionId": session})
            await other.load(session, cwd)
            reason = await other.prompt(session, "/help")

    assert (closed, server_is_gone, reason) == ({}, True, "end_turn")


@pytest.mark.parametrize("again", [True, False])
async def test_trust_lowered_on_a_full_disk_is_stored_when_there_is_space(
    make_host: HostFactory, tmp_path: Path, again: bool
) -> None:
    """The lower trust is stored when the trust is lowered again or, at the latest, when the session is closed."""
    disk = FailingDisk()
    store = SqliteStore(tmp_path / "holdfast.db", connect=disk.open)
    async with store, Host(settings=make_host({}).settings, store=store) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        disk.fails_with = sqlite3.SQLITE_FULL
        with raises_code(codes.STORE_FULL):
            await session.lower_trust()
        disk.fails_with = 0
        if again:
            await session.lower_trust()
        else:
            await session.close()
        stored = await store.session(session.context.session_id)

    assert stored is not None
    assert (stored.context.trust_level, session.context.trust_level) == (Trust.SANDBOXED, Trust.SANDBOXED)


@pytest.mark.promise("AUD-01")
async def test_every_call_has_one_end_and_one_record_once_there_is_space(
    make_host: HostFactory, tmp_path: Path, small_disk: Path
) -> None:
    ballast = Ballast(small_disk)
    host = make_host({"c": counter_entry()}, durable=True, HOLDFAST_DATA_DIR=str(small_disk))
    async with host, host.session(cwd=tmp_path) as session, Watcher(session.record.events) as watcher:
        slow = asyncio.create_task(session.call("c.sleep", {"seconds": 1}))
        await session.call("c.count")
        ballast.take_all()
        full = await call_until_full(session)
        ballast.drop()
        result, slept = await session.call("c.count"), await slow
        published = await watcher.caught_up()
        records = await audit_records(host, AuditKind.CALL)
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    assert full.code in (codes.STORE_FULL, codes.RESULT_NOT_STORED)  # not made, or made
    begun = [event.call_id for event in events if isinstance(event, ToolCalled)]
    ended = [event.call_id for event in events if isinstance(event, ToolEnded)]
    assert (result.ok, slept.ok) == (True, True)
    assert sorted(begun) == sorted(ended)
    ids = [record.call_id for record in records]
    assert len(ids) == len({*ids, *begun})  # one record per call
    assert {record.outcome for record in records if record.call_id not in begun} <= {Outcome.REFUSED}
    made = [record for record in records if record.outcome != Outcome.REFUSED]
    assert sum(record.tool == "count" for record in made) == int(result.text)  # as many as the server counted
    assert [event for event in events if isinstance(event, ToolCalled | ToolEnded)] == [
        event for event in published if isinstance(event, ToolCalled | ToolEnded)
    ]


@pytest.mark.promise("STO-03")
async def test_error_of_a_call_that_was_made_does_not_advise_to_try_again(
    make_host: HostFactory, tmp_path: Path
):
    """The control is a call that was not made: it gets the store's own error, which says to try again."""
    disk, sent = FailingDisk(), list[str]()
    box = Toolbox("mail")

    @box.tool
    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        disk.fails_with = sqlite3.SQLITE_FULL
        return "sent"

    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=make_host({}).settings, store=store, servers={"mail": box}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        with pytest.raises(HoldfastError) as made:
            await session.call("mail.send", {"text": "one"})
        with pytest.raises(HoldfastError) as not_made:
            await session.call("mail.send", {"text": "two"})
        disk.fails_with = 0
        with pytest.raises(HoldfastError) as in_turn:
            await session.prompt(text_prompt('/call mail.send {"text": "three"}'))
        disk.fails_with = 0

    assert sent == ["one", "three"]
    assert [error.value.code.name for error in (made, not_made, in_turn)] == [
        "RESULT_NOT_STORED",
        "STORE_FULL",
        "RESULT_NOT_STORED",
    ]
    assert made.value.message == in_turn.value.message
    assert made.value.message == (
        "mail.send was called and completed, but its result could not be stored (no space is left on the disk) and is "
        "lost. Do not call it again without checking what the call has done."
    )


@pytest.mark.promise("ACP-08")
async def test_turns_cancelled_on_a_full_disk_end_as_cancelled_and_the_session_works_again(
    make_host: HostFactory, tmp_path: Path
):
    agent = WaitingAgent()
    async with failing_host(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        session.agent = agent
        prompts = [asyncio.create_task(session.prompt(text_prompt(text))) for text in ("one", "two")]
        await agent.started.wait()
        await session.record.flush()
        disk.fails_with = sqlite3.SQLITE_FULL
        session.cancel()
        reasons = [turn.reason for turn in await asyncio.gather(*prompts)]
        disk.fails_with = 0
        session.agent = SlashCommandAgent()
        after = (await session.prompt(text_prompt("/help"))).reason
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    assert (reasons, after) == ([StopReason.CANCELLED] * 2, StopReason.END_TURN)
    begun = [event.turn_id for event in events if isinstance(event, Prompted)]
    assert begun == [event.turn_id for event in events if isinstance(event, TurnEnded)]


@pytest.mark.promise("ACP-08")
async def test_turn_cancelled_during_a_call_on_a_full_disk_ends_as_cancelled(
    make_host: HostFactory, tmp_path: Path
):
    async with failing_host(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        prompt = asyncio.create_task(session.prompt(text_prompt('/call c.sleep {"seconds": 60}')))
        async for stored in session.subscribe():
            if isinstance(stored.event, ToolStarted):
                break
        disk.fails_with = sqlite3.SQLITE_FULL
        session.cancel()

        assert (await prompt).reason is StopReason.CANCELLED
