"""Turns one after another: what is cancelled, and what is kept of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from holdfast.agent.agent import Command, Desk
from holdfast.host import Host
from holdfast.model.event import Prompted, StopReason, Titled, TurnEnded
from holdfast.model.json import JsonObject
from holdfast.session.session import Session
from holdfast.session.turn import Conversation
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-08")]


class Waits:
    """An agent that answers nothing until it is cancelled; then it does what it was told."""

    commands: tuple[Command, ...] = ()

    def __init__(self, when_cancelled: Callable[[], Awaitable[StopReason]] | None = None) -> None:
        self.begun: list[str] = []
        self.works = asyncio.Event()
        self._when_cancelled = when_cancelled

    async def turn(self, blocks: Sequence[JsonObject], desk: Desk) -> StopReason:
        self.begun.append(str(blocks[0]["text"]))
        self.works.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._when_cancelled is None:
                raise
            return await self._when_cancelled()
        return StopReason.END_TURN


def words(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}]


async def kept(host: Host, session: Session) -> list[str]:
    """What was said, what it was called, and how each turn ended."""
    told: list[str] = []
    async for stored in host.store.events(session.context.session_id):
        match stored.event:
            case Prompted(blocks=blocks):
                told.append(str(blocks[0]["text"]))
            case Titled(title=title):
                told.append(f"title: {title}")
            case TurnEnded(reason=reason):
                told.append(f"end: {reason}")
            case _:
                pass
    return told


@pytest.mark.parametrize("steps", range(6))
async def test_a_prompt_that_is_cancelled_at_any_step_is_kept_and_ends_as_cancelled(
    make_host: HostFactory, tmp_path: Path, steps: int
):
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Waits())
        prompt = asyncio.create_task(conversation.prompt(words("hello")))
        await asyncio.sleep(0)  # it has taken its first step, and is a turn
        for _ in range(steps):
            await asyncio.sleep(0)
        conversation.cancel()
        reason = await prompt

        assert (reason, conversation.busy) == (StopReason.CANCELLED, False)
        assert await kept(host, session) == ["hello", "title: hello", "end: cancelled"]


async def test_one_cancel_ends_the_turn_that_runs_and_all_that_wait_in_order_and_keeps_their_words(
    make_host: HostFactory, tmp_path: Path
):
    ended: list[int] = []
    agent = Waits()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, agent, titled=True)
        prompts = [asyncio.create_task(conversation.prompt(words(f"{at}"))) for at in range(4)]
        for at, prompt in enumerate(prompts):
            prompt.add_done_callback(lambda _, at=at: ended.append(at))
        await agent.works.wait()
        conversation.cancel()
        reasons = await asyncio.gather(*prompts)

        assert (reasons, ended) == ([StopReason.CANCELLED] * 4, [0, 1, 2, 3])
        assert agent.begun == ["0"]
        assert await kept(host, session) == [
            line for at in range(4) for line in (f"{at}", "end: cancelled")
        ]  # fmt: skip


async def test_a_turn_whose_agent_goes_on_although_it_was_cancelled_is_cancelled(
    make_host: HostFactory, tmp_path: Path
):
    async def goes_on() -> StopReason:
        return StopReason.END_TURN

    agent = Waits(goes_on)
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, agent, titled=True)
        prompt = asyncio.create_task(conversation.prompt(words("hello")))
        await agent.works.wait()
        conversation.cancel()

        assert await prompt is StopReason.CANCELLED
        assert await kept(host, session) == ["hello", "end: cancelled"]


async def test_whoever_is_cancelled_while_it_waits_for_its_turn_goes_on_when_the_turn_has_ended(
    make_host: HostFactory, tmp_path: Path
):
    agent = Waits()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, agent, titled=True)
        prompt = asyncio.create_task(conversation.prompt(words("hello")))
        await agent.works.wait()
        for _ in range(3):
            prompt.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([prompt])

        assert (prompt.cancelled(), conversation.busy) == (True, False)
        assert await kept(host, session) == ["hello", "end: cancelled"]


async def test_a_prompt_that_was_cancelled_before_it_came_is_kept_and_not_answered(
    make_host: HostFactory, tmp_path: Path
):
    agent = Waits()
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, agent, titled=True)

        assert await conversation.prompt(words("hello"), cancelled=True) is StopReason.CANCELLED
        assert agent.begun == []
        assert await kept(host, session) == ["hello", "end: cancelled"]
