"""Turns in order: which are cancelled, and what is stored of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.agent.agent import Command, TurnContext
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.host.callback_door import CallbackDoor
from holdfast.host.host import Host
from holdfast.model.codes import BUSY, MODEL_UNAVAILABLE
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Prompted, StopReason, Titled, TurnEnded
from holdfast.model.json import JsonObject
from holdfast.session import turns
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import ScriptedUser, WaitingAgent, text_prompt

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-08")]


async def summarize(host: Host, session: Session) -> list[str]:
    """The prompts, the title, and how each turn ended."""
    lines: list[str] = []
    async for stored in host.store.events(session.context.session_id):
        match stored.event:
            case Prompted(blocks=blocks):
                lines.append(str(blocks[0]["text"]))
            case Titled(title=title):
                lines.append(f"title: {title}")
            case TurnEnded(reason=reason):
                lines.append(f"end: {reason}")
            case _:
                pass
    return lines


@pytest.mark.parametrize("steps", range(6))
async def test_prompt_cancelled_at_any_step_is_stored_and_ends_as_cancelled(
    make_host: HostFactory, tmp_path: Path, steps: int
):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = WaitingAgent()
        prompt = asyncio.create_task(session.prompt(text_prompt("hello")))
        await asyncio.sleep(0)  # the prompt's task has started
        for _ in range(steps):
            await asyncio.sleep(0)
        session.cancel()
        reason = (await prompt).reason

        assert (reason, session.is_busy) == (StopReason.CANCELLED, False)
        assert await summarize(host, session) == ["hello", "title: hello", "end: cancelled"]


async def test_cancel_ends_the_running_turn_and_the_waiting_ones_in_order_and_stores_their_prompts(
    make_host: HostFactory, tmp_path: Path
):
    ended: list[int] = []
    agent = WaitingAgent()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent
        prompts = [asyncio.create_task(session.prompt(text_prompt(f"{index}"))) for index in range(4)]
        for index, prompt in enumerate(prompts):
            prompt.add_done_callback(lambda _, index=index: ended.append(index))
        await agent.started.wait()
        session.cancel()
        reasons = [turn.reason for turn in await asyncio.gather(*prompts)]

        assert (reasons, ended) == ([StopReason.CANCELLED] * 4, [0, 1, 2, 3])
        assert agent.prompts == ["0"]
        assert await summarize(host, session) == [
            *("0", "title: 0", "end: cancelled"),
            *(line for index in range(1, 4) for line in (f"{index}", "end: cancelled")),
        ]


async def test_turn_is_cancelled_even_if_the_agent_swallows_the_cancellation(
    make_host: HostFactory, tmp_path: Path
):
    async def end_normally() -> StopReason:
        return StopReason.END_TURN

    agent = WaitingAgent(end_normally)
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent
        prompt = asyncio.create_task(session.prompt(text_prompt("hello")))
        await agent.started.wait()
        session.cancel()

        assert (await prompt).reason is StopReason.CANCELLED
        assert await summarize(host, session) == ["hello", "title: hello", "end: cancelled"]


async def test_caller_cancelled_while_waiting_is_released_when_its_turn_has_ended(
    make_host: HostFactory, tmp_path: Path
):
    agent = WaitingAgent()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent
        prompt = asyncio.create_task(session.prompt(text_prompt("hello")))
        await agent.started.wait()
        for _ in range(3):
            prompt.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([prompt])

        assert (prompt.cancelled(), session.is_busy) == (True, False)
        assert await summarize(host, session) == ["hello", "title: hello", "end: cancelled"]


async def test_caller_cancelled_behind_another_turn_is_released_at_once_and_its_prompt_is_stored_later(
    make_host: HostFactory, tmp_path: Path
):
    agent = WaitingAgent()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent
        first = asyncio.create_task(session.prompt(text_prompt("first")))
        await agent.started.wait()
        second = asyncio.create_task(session.prompt(text_prompt("second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        is_first_running = not first.done()
        session.cancel()
        await first
        while session.is_busy:
            await asyncio.sleep(0)

        assert (is_first_running, second.cancelled()) == (True, True)
        assert await summarize(host, session) == [
            *("first", "title: first", "end: cancelled"),
            *("second", "end: cancelled"),
        ]


async def test_prompt_that_is_already_cancelled_is_stored_and_not_answered(
    make_host: HostFactory, tmp_path: Path
):
    agent = WaitingAgent()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent
        attachment = session.attach(ScriptedUser())
        turn = await attachment.prompt(text_prompt("hello"), is_cancelled=True)

        assert turn.reason is StopReason.CANCELLED
        assert agent.prompts == []
        assert await summarize(host, session) == ["hello", "title: hello", "end: cancelled"]


class FailingAgent:
    """An agent whose turns fail in one way each."""

    commands: tuple[Command, ...] = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        match blocks[0]["text"]:
            case "crash":
                raise ZeroDivisionError("hunter2")
            case "foreseen":
                raise HoldfastError(MODEL_UNAVAILABLE, "The model is away.")
            case "named":
                raise HoldfastError("NOT_PERMITTED", "The agent may not.")
            case "own code":
                raise HoldfastError("NO_CAKE_LEFT", "There is no cake left.")
            case "nothing":
                return None  # type: ignore[return-value]
            case _:
                return StopReason.END_TURN


FAILURES = {
    "crash": "INTERNAL_ERROR",
    "foreseen": "MODEL_UNAVAILABLE",
    "named": "NOT_PERMITTED",
    "own code": "NO_CAKE_LEFT",
    "nothing": "BAD_ARGUMENT",
    "fine": "",
}


async def test_a_turn_that_failed_says_so_in_its_result_and_in_the_log(
    make_host: HostFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        no_model = await session.prompt("hello")
        command = await session.prompt("/help")
        session.agent = FailingAgent()
        results = {text: await session.prompt(text) for text in FAILURES}
        asked = session.prompt("foreseen")
        stored = [event async for event in asked]

    assert (no_model.code, command.code) == ("NO_MODEL", "")
    assert {text: result.code for text, result in results.items()} == FAILURES
    assert [text for text, result in results.items() if result.ok] == ["fine"]
    assert results["crash"].message == "The agent raised ZeroDivisionError. The log has the traceback."
    assert asked.result == replace(results["foreseen"], last_seq=asked.result.last_seq if asked.result else 0)
    assert [one.event.code for one in stored if isinstance(one.event, TurnEnded)] == ["MODEL_UNAVAILABLE"]
    assert results["fine"].raise_for_error() is results["fine"]
    raised = dict[str, str]()
    for text, result in results.items():
        try:
            result.raise_for_error()
        except HoldfastError as error:
            raised[text] = error.code.name
    assert raised == {text: code for text, code in FAILURES.items() if code}
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "turn failed: MODEL_UNAVAILABLE: The model is away." in logged


@pytest.mark.parametrize("limit", [turns.MAX_WAITING_PROMPTS, 1000], ids=["attack", "control"])
async def test_prompts_that_wait_are_limited(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
):
    monkeypatch.setattr(turns, "MAX_WAITING_PROMPTS", limit)
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent = WaitingAgent()
        prompts = [asyncio.create_task(session.prompt(text_prompt(f"{index}"))) for index in range(30)]
        await agent.started.wait()
        refused = [prompt for prompt in prompts if prompt.done()]
        other = asyncio.create_task(session.attach(CallbackDoor()).prompt(text_prompt("of another door")))
        await asyncio.sleep(0)
        assert not other.done(), "the prompts of one door do not use up the places of another"
        session.cancel()
        await asyncio.wait([*prompts, other])

        codes = {prompt.exception().code for prompt in refused}  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        assert (len(refused), codes) == ((13, {BUSY}) if limit == 16 else (0, set()))
        session.agent = SlashCommandAgent()
        assert (await session.prompt(text_prompt("/help"))).reason is StopReason.END_TURN


async def test_cancelling_also_cancels_the_waiting_prompts_of_doors_that_have_left(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        session.agent = agent = WaitingAgent()
        running = asyncio.create_task(session.attach(CallbackDoor()).prompt(text_prompt("running")))
        await agent.started.wait()
        left, stays, cancels = (session.attach(CallbackDoor(ask=ask)) for ask in (bool, bool, bool))
        waiting = [asyncio.create_task(door.prompt(text_prompt("waiting"))) for door in (left, stays)]
        await asyncio.sleep(0)
        left.detach()
        session.agent = SlashCommandAgent()
        cancels.cancel()

        reasons = [(await turn).reason for turn in (running, *waiting)]
    assert reasons == [StopReason.CANCELLED, StopReason.CANCELLED, StopReason.END_TURN]


async def test_commands_about_the_session_are_no_title(make_host: HostFactory, tmp_path: Path):
    prompts = ("/help", "/tools files", "/call files.list {}", "/servers")
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        for text in prompts:
            await session.prompt(text)

        titles = [line for line in await summarize(host, session) if line.startswith("title")]
        assert titles == ["title: /call files.list {}"]
