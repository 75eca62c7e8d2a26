"""A live session belongs to its host: doors attach, see everything, prompt in order, and leave."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.agent.agent import Command, TurnContext
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.event import Event, Prompted, Replied, SessionClosed, StopReason, TurnEnded
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.trust import Trust
from holdfast.session.attachment import Attachment
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import ScriptedUser, text_prompt
from tests.store.sessions import raises_code

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-01")]


class Echo:
    """An agent that waits until `may_answer` is set, then repeats the prompt."""

    commands: tuple[Command, ...] = ()

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.started = asyncio.Event()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        self.started.set()
        await self.may_answer.wait()
        await turn.reply(f"re: {blocks[0]['text']}")
        return StopReason.END_TURN


class Screen:
    """What a door shows: the events of its subscription, in a few words."""

    def __init__(self, session: Session, *, after: int = 0) -> None:
        self.attachment: Attachment = session.attach(ScriptedUser())
        self.events = self.attachment.subscribe(after)
        self.lines: list[str] = []
        self._task = asyncio.create_task(self._show())

    async def prompt(self, text: str) -> StopReason:
        turn = await self.attachment.prompt(text_prompt(text))
        await self.events.wait_handled(turn.last_seq)
        return turn.reason

    async def close(self) -> list[str]:
        self.events.close()
        await self._task
        return self.lines

    async def _show(self) -> None:
        async for stored in self.events:
            if line := _line(stored.event):
                self.lines.append(line)


def _line(event: Event) -> str:
    match event:
        case Prompted(blocks=blocks):
            return f"prompt {blocks[0]['text']}"
        case Replied(text=text):
            return text
        case TurnEnded(reason=reason):
            return str(reason)
        case _:
            return ""


@asynccontextmanager
async def opened(
    make_host: HostFactory, folder: Path, **options: object
) -> AsyncIterator[tuple[Host, Session]]:
    async with make_host({}) as host:
        session = await host.open(OpenOptions(cwd=folder))
        session.agent = Echo()
        yield host, session


async def test_two_doors_see_everything_and_prompt_in_order(make_host: HostFactory, tmp_path: Path):
    async with opened(make_host, tmp_path) as (_, session):
        agent = session.agent
        assert isinstance(agent, Echo)
        one, two = Screen(session), Screen(session)
        turns = [
            asyncio.create_task(door.prompt(text)) for door, text in ((one, "a"), (two, "b"), (one, "c"))
        ]
        await agent.started.wait()
        agent.may_answer.set()
        reasons = await asyncio.gather(*turns)
        await two.events.wait_handled(session.record.events.last)
        shown = await one.close(), await two.close()

    end = "end_turn"
    assert reasons == [StopReason.END_TURN] * 3
    assert shown[0] == ["re: a", end, "prompt b", "re: b", end, "re: c", end]
    assert shown[1] == ["prompt a", "re: a", end, "re: b", end, "prompt c", "re: c", end]


async def test_a_door_that_attaches_during_a_turn_sees_the_past_and_the_rest(
    make_host: HostFactory, tmp_path: Path
):
    async with opened(make_host, tmp_path) as (host, session):
        agent = session.agent
        assert isinstance(agent, Echo)
        first = Screen(session)
        turn = asyncio.create_task(first.prompt("a"))
        await agent.started.wait()
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))
        late = Screen(again)
        agent.may_answer.set()
        await turn
        await late.events.wait_handled(session.record.events.last)
        shown = await late.close()

    assert (again is session, shown) == (True, ["prompt a", "re: a", "end_turn"])


async def test_cancelling_ends_the_running_turn_and_only_the_own_waiting_prompts(
    make_host: HostFactory, tmp_path: Path
):
    async with opened(make_host, tmp_path) as (_, session):
        agent = session.agent
        assert isinstance(agent, Echo)
        one, two = Screen(session), Screen(session)
        turns = [
            asyncio.create_task(door.prompt(text)) for door, text in ((one, "a"), (two, "b"), (one, "c"))
        ]
        await agent.started.wait()
        two.attachment.cancel()
        first = await turns[0]
        agent.may_answer.set()

        assert [first, await turns[1], await turns[2]] == [
            StopReason.CANCELLED,
            StopReason.CANCELLED,
            StopReason.END_TURN,
        ]


async def test_a_session_outlives_a_door_that_leaves(make_host: HostFactory, tmp_path: Path):
    async with opened(make_host, tmp_path) as (host, session):
        agent = session.agent
        assert isinstance(agent, Echo)
        agent.may_answer.set()
        one, two = Screen(session), Screen(session)
        left = one.attachment.detach()
        await one.close()
        reason = await two.prompt("hello")
        live = host.find_live(session.context.session_id)

    assert (left, reason, live is session) == (1, StopReason.END_TURN, True)


async def test_closing_a_session_ends_its_turn_and_calls_for_every_door(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        session.agent = agent = Echo()
        one, two = Screen(session), Screen(session)
        turn = asyncio.create_task(one.prompt("a"))
        await agent.started.wait()
        running, also_told = asyncio.Event(), asyncio.Event()
        session.on_call_progress(lambda call_id, params: running.set())
        session.on_call_progress(lambda call_id, params: also_told.set())
        call = asyncio.create_task(session.call("c.linger"))
        await asyncio.gather(running.wait(), also_told.wait())
        await asyncio.gather(session.close(), session.close())
        reason, result = await turn, await call
        shown = await two.close()
        events = [stored.event async for stored in host.store.events(session.context.session_id)]
        lease = await host.store.read(lambda tx: tx.lease(session.context.session_id))

        assert host.find_live(session.context.session_id) is None
        with raises_code(codes.SCOPE_CLOSED):
            await session.prompt(text_prompt("late"))

    assert (reason, result.code, shown) == (
        StopReason.CANCELLED,
        "SCOPE_CLOSED",
        ["prompt a", "cancelled"],
    )
    assert lease is None
    assert [event for event in events if isinstance(event, SessionClosed)] == [events[-1]]


async def test_a_turn_can_close_its_own_session(make_host: HostFactory, tmp_path: Path):
    class Closer(Echo):
        async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
            await session.close()
            return StopReason.END_TURN

    async with opened(make_host, tmp_path) as (host, session):
        session.agent = Closer()
        turn = await session.prompt(text_prompt("close"))
        ends = [
            stored.event.reason
            async for stored in host.store.events(session.context.session_id)
            if isinstance(stored.event, TurnEnded)
        ]

    assert (turn.reason, ends) == (StopReason.CANCELLED, [StopReason.INTERRUPTED])


async def test_a_session_that_is_being_closed_is_reopened_from_the_store(
    make_host: HostFactory, tmp_path: Path
):
    async with opened(make_host, tmp_path) as (host, session):
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))

        assert again is not session
        assert host.find_live(session.context.session_id) is again
        await closing
        await again.call("files.list")


async def test_concurrent_reopens_give_one_session(make_host: HostFactory, tmp_path: Path):
    async with opened(make_host, tmp_path) as (host, session):
        await session.close()
        options = OpenOptions(cwd=tmp_path)
        found = await asyncio.gather(*(host.reopen(session.context.session_id, options) for _ in range(5)))

        assert len(set(found)) == 1


async def test_a_live_session_is_joined_only_as_it_is(make_host: HostFactory, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    refused = [
        (codes.UNKNOWN_SESSION, OpenOptions(cwd=tmp_path, user_id="ann")),
        (codes.BAD_ARGUMENT, OpenOptions(cwd=other)),
        (codes.SESSION_HELD, OpenOptions(cwd=tmp_path, trust=Trust.SANDBOXED)),
        (codes.SESSION_HELD, OpenOptions(cwd=tmp_path, roots=(str(other),))),
    ]
    async with opened(make_host, tmp_path) as (host, session):
        for code, options in refused:
            with raises_code(code):
                await host.reopen(session.context.session_id, options)


@pytest.mark.promise("SES-04")
async def test_a_door_with_a_lower_limit_lowers_the_mode_of_the_session_it_joins(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({}, HOLDFAST_PERMISSION_MAX_MODE_ACP="ask") as host:
        session = await host.open(OpenOptions(cwd=tmp_path, mode=Mode.AUTO))
        before = session.permission.mode
        await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path, opened_by="acp", mode=None))

        assert (before, session.permission.mode) == (Mode.AUTO, Mode.ASK)


@pytest.mark.promise("SES-04")
async def test_no_door_raises_the_mode_above_the_limit_for_an_application_that_has_the_session_open(
    make_host: HostFactory, tmp_path: Path
):
    """The application has no door: it gave no function that answers."""
    async with make_host({}, HOLDFAST_PERMISSION_MAX_MODE_PYTHON="ask") as host:
        editor = OpenOptions(cwd=tmp_path, opened_by="acp", mode=None, door=ScriptedUser())
        session = await host.open(editor)
        async with host.reopen(session.context.session_id):
            with raises_code(codes.NOT_PERMITTED):
                await session.permission.change_mode(Mode.AUTO, DoorKind.CHAT)
            limited = session.permission.mode
        await session.permission.change_mode(Mode.AUTO, DoorKind.CHAT)

        assert (limited, session.permission.mode) == (Mode.ASK, Mode.AUTO)


@pytest.mark.parametrize(
    ("opened_by", "asked", "stored", "expected"),
    [
        ("acp", None, None, Mode.ASK),
        ("acp", None, Mode.READ_ONLY, Mode.READ_ONLY),
        ("acp", None, Mode.AUTO, Mode.ASK),
        ("python", Mode.AUTO, Mode.READ_ONLY, Mode.READ_ONLY),
    ],
)
@pytest.mark.promise("SES-04")
async def test_the_mode_of_a_reopened_session(
    make_host: HostFactory,
    tmp_path: Path,
    opened_by: str,
    asked: Mode | None,
    stored: Mode | None,
    expected: Mode,
):
    """A reopened session has its stored mode, but not above the door's limit or what the caller asks for."""
    async with make_host({}, HOLDFAST_PERMISSION_MAX_MODE_ACP="ask") as host:
        session = await host.open(OpenOptions(cwd=tmp_path))
        if stored is not None:
            await session.permission.change_mode(stored)
        await session.close()
        options = OpenOptions(cwd=tmp_path, opened_by=opened_by, mode=asked)
        again = await host.reopen(session.context.session_id, options)

        assert again.permission.mode is expected


async def test_why_names_a_server_that_was_added_after_the_session_began(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        await session.prompt(text_prompt("/why kitchen"))
        user_file = host.settings.servers.user_file
        user_file.write_text(json.dumps({"mcpServers": {"kitchen": counter_entry()}}))
        await session.prompt(text_prompt("/why kitchen"))
        await session.record.flush()
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    assert [event.text for event in events if isinstance(event, Replied)] == [
        "There is no server 'kitchen' here. /servers lists the servers.\n",
        "kitchen was added after this session began. To use it, open a new session.\n",
    ]
