"""A turn that is cancelled ends as cancelled, also when the disk is too full to keep that."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.agent.manual import Manual
from holdfast.model.event import Event, Prompted, StopReason, ToolStarted, TurnEnded
from holdfast.session.permission import Mode
from holdfast.session.turn import Conversation
from tests.connect.conftest import HostFactory, make_host
from tests.session.test_owed import failing
from tests.session.test_turn import Waits, words

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-08")]


async def test_turns_that_are_cancelled_on_a_full_disk_end_as_cancelled_and_the_session_goes_on(
    make_host: HostFactory, tmp_path: Path
):
    agent = Waits()
    async with failing(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, agent)
        prompts = [asyncio.create_task(conversation.prompt(words(text))) for text in ("one", "two")]
        await agent.works.wait()
        await session.record.told()
        disk.fails_with = sqlite3.SQLITE_FULL
        conversation.cancel()
        reasons = await asyncio.gather(*prompts)
        disk.fails_with = 0
        conversation.agent = Manual()
        after = await conversation.prompt(words("/help"))
        events = [stored.event async for stored in host.store.events(session.context.session_id)]

    assert (reasons, after) == ([StopReason.CANCELLED] * 2, StopReason.END_TURN)
    begun = [event.turn_id for event in events if isinstance(event, Prompted)]
    assert begun == [event.turn_id for event in events if isinstance(event, TurnEnded)]


async def test_a_turn_that_is_cancelled_during_a_call_on_a_full_disk_ends_as_cancelled(
    make_host: HostFactory, tmp_path: Path
):
    async with failing(make_host, tmp_path) as (host, disk), host.session(cwd=tmp_path) as session:
        started = asyncio.Event()
        conversation = Conversation(session, Manual())
        await session.settle()

        async def hear(event: Event) -> None:
            if isinstance(event, ToolStarted):
                started.set()

        session.record.listen(hear)
        await conversation.change_mode(Mode.AUTO)
        prompt = asyncio.create_task(conversation.prompt(words('/call c.sleep {"seconds": 60}')))
        await started.wait()
        disk.fails_with = sqlite3.SQLITE_FULL
        conversation.cancel()

        assert await prompt is StopReason.CANCELLED
