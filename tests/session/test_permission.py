"""Who is asked before a call, how often, and what the mode says in spite of it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.manual import Manual
from holdfast.audit.record import AuditKind
from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.session.permission import Mode
from holdfast.session.turn import Conversation
from tests.connect.conftest import HostFactory, counter, make_host
from tests.session.test_audited import Person, notes
from tests.session.test_turn import words

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-09")]

COUNT = "/call c.count"


class Thoughtful(Person):
    """Takes its time: it answers when it is told to, and knows how often it was asked."""

    def __init__(self, *decisions: Decision) -> None:
        super().__init__(*decisions)
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def permit(self, call: ToolCall, title: str) -> Decision:
        self.asked += 1
        self.is_asked.set()
        await self.may_answer.wait()
        return await super().permit(call, title)


async def test_mode_read_only_refuses_what_was_always_allowed_before(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Manual(), Person(Decision.ALLOW_ALWAYS))
        for mode in (Mode.ASK, Mode.READ_ONLY, Mode.ASK):
            await conversation.change_mode(mode)
            await conversation.prompt(words(COUNT))
        kept = await notes(host, AuditKind.CALL)

    assert [note.outcome for note in kept] == ["completed", "refused", "completed"]


async def test_mode_read_only_refuses_what_was_allowed_while_it_came(make_host: HostFactory, tmp_path: Path):
    person = Thoughtful(Decision.ALLOW_ONCE)
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Manual(), person)
        turn = asyncio.create_task(conversation.prompt(words(COUNT)))
        await person.is_asked.wait()
        await conversation.change_mode(Mode.READ_ONLY)
        person.may_answer.set()
        await turn
        kept = await notes(host, AuditKind.CALL)

    assert [(note.outcome, note.reason) for note in kept] == [("refused", "NOT_PERMITTED")]


async def test_several_calls_of_a_tool_at_once_ask_one_by_one_and_always_is_asked_once(
    make_host: HostFactory, tmp_path: Path
):
    person = Thoughtful(Decision.ALLOW_ALWAYS)
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        await session.settle()
        conversation = Conversation(session, Manual(), person)
        turn = asyncio.create_task(conversation.prompt(words("\n".join([COUNT] * 3))))
        await person.is_asked.wait()
        person.may_answer.set()
        await turn
        kept = await notes(host, AuditKind.CALL)

    assert (person.asked, [note.outcome for note in kept]) == (1, ["completed"] * 3)


async def test_of_several_calls_that_wait_each_is_asked_for_when_the_first_is_rejected(
    make_host: HostFactory, tmp_path: Path
):
    person = Thoughtful(Decision.REJECT, Decision.ALLOW_ONCE, Decision.REJECT)
    person.may_answer.set()
    async with make_host({"c": counter()}) as host, host.session(cwd=tmp_path) as session:
        conversation = Conversation(session, Manual(), person)
        await conversation.prompt(words("\n".join([COUNT] * 3)))
        kept = await notes(host, AuditKind.CALL)

    assert (person.asked, sorted(note.outcome for note in kept)) == (3, ["completed", "refused", "refused"])
