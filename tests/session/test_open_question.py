"""Questions to several doors: each that can answer is asked, the first answer counts, and a door that leaves changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from holdfast.audit.record import AuditKind
from holdfast.connect.call import ToolResult
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, PermissionDecided, Prompted, ToolCalled
from holdfast.model.ids import new_session_id
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.session.doors import Doors
from holdfast.session.session import Session
from holdfast.session.subscription import EventFeed
from holdfast.store.memory import MemoryStore
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import ScriptedUser, audit_records, text_prompt
from tests.store.sessions import raises_code

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-03")]

CALL = ToolCall(call_id="call_1", server="s", tool="t")


class User(ScriptedUser):
    """A door whose user answers when told to. It remembers what happened to each question."""

    def __init__(self, *, elicitation: bool = False) -> None:
        super().__init__()
        self.capabilities = DoorCapabilities(permission=True, elicitation=elicitation)
        self.is_asked = asyncio.Event()
        self.answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.log: list[str] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        return await self._ask()

    async def elicit(self, params: JsonObject) -> JsonObject:
        return {"action": "accept", "content": {"answer": (await self._ask()).value}}

    async def _ask(self) -> Decision:
        self.log.append("asked")
        self.is_asked.set()
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.log.append("told that it is settled")
            raise


@pytest.fixture
def doors() -> Doors:
    return Doors(EventFeed(new_session_id(), MemoryStore()))


@asynccontextmanager
async def asking(doors: Doors, *asked: User) -> AsyncIterator["asyncio.Task[Decision]"]:
    """Ask for permission; the block begins when these users are asked."""
    question = asyncio.create_task(
        doors.request_permission(PermissionQuestion(call=CALL, title="title", can_remember=True))
    )
    for user in asked:
        await user.is_asked.wait()
    yield question
    if not question.done():
        question.cancel()
        await asyncio.wait([question])


async def test_the_first_answer_counts_and_the_others_are_told(doors: Doors):
    one, two = User(), User()
    for user in (one, two):
        doors.attach(user)
    async with asking(doors, one, two) as question:
        two.answer.set_result(Decision.ALLOW_ONCE)

        assert await question is Decision.ALLOW_ONCE
        assert (one.log, two.log) == (["asked", "told that it is settled"], ["asked"])


async def test_a_rejection_names_the_door_if_others_were_asked_too(doors: Doors):
    acpx, terminal = User(), User()
    acpx.capabilities = replace(acpx.capabilities, name="acpx")
    for user in (acpx, terminal):
        doors.attach(user)
    async with asking(doors, acpx, terminal) as question:
        acpx.answer.set_result(Decision.REJECT)
        await question

    assert [doors.pop_rejected_by(CALL.call_id) for _ in range(2)] == ["acpx", ""]


async def test_a_door_that_leaves_while_asked_changes_nothing_for_the_rest(doors: Doors):
    leaver, stayer = User(), User()
    attached = doors.attach(leaver)
    doors.attach(stayer)
    async with asking(doors, leaver, stayer) as question:
        doors.detach(attached)
        leaver.answer.set_result(Decision.REJECT)
        await asyncio.sleep(0)
        stayer.answer.set_result(Decision.ALLOW_ALWAYS)

        assert await question is Decision.ALLOW_ALWAYS


@pytest.mark.parametrize("failure", [HoldfastError(codes.CONNECTION_CLOSED, "gone"), ValueError("a bug")])
async def test_a_door_whose_connection_fails_has_not_answered(doors: Doors, failure: Exception):
    failing, other = User(), User()
    for user in (failing, other):
        doors.attach(user)
    async with asking(doors, failing, other) as question:
        failing.answer.set_exception(failure)
        await asyncio.sleep(0)
        other.answer.set_result(Decision.ALLOW_ONCE)

        assert await question is Decision.ALLOW_ONCE


async def test_a_question_fails_when_the_last_door_has_left(doors: Doors):
    one, two = User(), User()
    attached = [doors.attach(user) for user in (one, two)]
    async with asking(doors, one, two) as question:
        for door in attached:
            doors.detach(door)
        with raises_code(codes.NO_ANSWER):
            await question


async def test_a_question_without_a_door_that_may_answer_fails_at_once(doors: Doors):
    watching = User()
    doors.attach(watching, may_answer=False)
    with raises_code(codes.NO_ANSWER):
        await doors.request_permission(PermissionQuestion(call=CALL, title="title", can_remember=True))

    assert (watching.log, doors.capabilities.permission) == ([], False)


async def test_a_door_that_attaches_while_a_question_is_open_can_answer_it(doors: Doors):
    silent, late = User(), User()
    doors.attach(silent)
    async with asking(doors, silent) as question:
        doors.attach(late)
        late.answer.set_result(Decision.REJECT)

        assert await question is Decision.REJECT
        assert silent.log == ["asked", "told that it is settled"]


async def test_a_question_waits_for_a_door_and_for_another_if_that_leaves():
    doors = Doors(EventFeed(new_session_id(), MemoryStore()), permission_wait=60)
    async with asking(doors) as question:
        await asyncio.sleep(0)
        first, second = User(), User()
        attached = doors.attach(first)
        await first.is_asked.wait()
        doors.detach(attached)
        await asyncio.sleep(0)
        doors.attach(second)
        second.answer.set_result(Decision.ALLOW_ONCE)

        assert await question is Decision.ALLOW_ONCE


async def test_a_question_waits_no_longer_than_the_setting_says():
    doors = Doors(EventFeed(new_session_id(), MemoryStore()), permission_wait=0.01)
    with raises_code(codes.NO_ANSWER):
        await doors.request_permission(PermissionQuestion(call=CALL, title="title", can_remember=True))


async def test_error_of_the_only_door_is_the_answer(doors: Doors):
    user = User()
    doors.attach(user)
    async with asking(doors, user) as question:
        user.answer.set_exception(HoldfastError(codes.TOO_LARGE, "too long to be sent"))
        with raises_code(codes.TOO_LARGE):
            await question


@pytest.mark.parametrize("answer", [False, True, None, "yes", 1])
async def test_an_answer_that_is_no_decision_is_not_a_permission(doors: Doors, answer: object):
    user = User()
    doors.attach(user)
    async with asking(doors, user) as question:
        user.answer.set_result(cast("Decision", answer))
        with raises_code(codes.BAD_ARGUMENT) as caught:
            await question

    assert caught.value.message == (
        "`request_permission` must return one of allow_once, allow_always, reject, "
        f"not a value of the type {type(answer).__name__}."
    )


@pytest.mark.parametrize("decision", Decision)
async def test_the_value_of_a_decision_is_the_decision(doors: Doors, decision: Decision):
    user = User()
    doors.attach(user)
    async with asking(doors, user) as question:
        user.answer.set_result(cast("Decision", decision.value))

        assert await question is decision


async def test_error_that_a_door_did_not_expect_is_named(doors: Doors):
    user = User()
    doors.attach(user)
    async with asking(doors, user) as question:
        user.answer.set_exception(ValueError("a bug"))
        with raises_code(codes.NO_ANSWER) as caught:
            await question

    assert caught.value.message == "Asking failed with ValueError; the log has the traceback."


async def test_an_elicitation_goes_to_every_door_that_can_show_it(doors: Doors):
    one, two, cannot = User(elicitation=True), User(elicitation=True), User()
    for user in (cannot, one, two):
        doors.attach(user)
    question = asyncio.create_task(doors.elicit({}))
    for user in (one, two):
        await user.is_asked.wait()
    one.answer.set_result(Decision.ALLOW_ONCE)

    assert await question == {"action": "accept", "content": {"answer": "allow_once"}}
    assert (two.log, cannot.log) == (["asked", "told that it is settled"], [])


async def test_a_door_that_leaves_an_elicitation_changes_nothing_and_with_none_left_it_fails(doors: Doors):
    one, two = User(elicitation=True), User(elicitation=True)
    attached = {user: doors.attach(user) for user in (one, two)}
    question = asyncio.create_task(doors.elicit({}))
    for user in (one, two):
        await user.is_asked.wait()
    doors.detach(attached[one])
    await asyncio.sleep(0)
    before = question.done()
    doors.detach(attached[two])

    with raises_code(codes.NO_ANSWER):
        await question
    assert (before, one.log, two.log) == (False, *[["asked", "told that it is settled"]] * 2)


async def test_of_two_answers_at_the_same_time_one_counts(doors: Doors):
    one, two = User(), User()
    for user in (one, two):
        doors.attach(user)
    async with asking(doors, one, two) as question:
        two.answer.set_result(Decision.REJECT)
        one.answer.set_result(Decision.ALLOW_ALWAYS)

        assert await question is Decision.REJECT
        assert len(doors._questions) == 0


# In a session


@asynccontextmanager
async def asked_session(make_host: HostFactory, folder: Path, **variables: str) -> AsyncIterator[Session]:
    async with (
        make_host({"c": counter_entry()}, **variables) as host,
        host.session(cwd=folder, permission=Mode.ASK) as session,
    ):
        yield session


async def test_a_door_is_asked_after_it_has_shown_the_call(make_host: HostFactory, tmp_path: Path):
    async with asked_session(make_host, tmp_path) as session:
        slow, fast = User(), User()
        subscription = session.attach(slow).subscribe(session.record.events.last)
        session.attach(fast)
        call = asyncio.create_task(session.call("c.count"))
        await fast.is_asked.wait()
        before = [*slow.log]
        shown = [type(stored.event) for stored in await subscription.next_batch()]
        reading = asyncio.create_task(subscription.next_batch())
        await slow.is_asked.wait()
        slow.answer.set_result(Decision.ALLOW_ONCE)
        result = await call
        subscription.close()
        await reading

    assert (before, shown, result.text) == ([], [ToolCalled], "1")


async def test_every_door_sees_who_else_decided_what(make_host: HostFactory, tmp_path: Path):
    async with asked_session(make_host, tmp_path) as session:
        one, two = User(), User()
        for user in (one, two):
            session.attach(user)
        watching = session.subscribe(session.record.events.last)
        call = asyncio.create_task(session.call("c.count"))
        await one.is_asked.wait()
        one.answer.set_result(Decision.REJECT)
        result = await call
        (decided,) = [
            one.event for one in await watching.next_batch() if isinstance(one.event, PermissionDecided)
        ]

    assert (result.code, decided.decision) == ("NOT_PERMITTED", Decision.REJECT)


@pytest.mark.promise("SES-04")
async def test_a_call_from_python_passes_the_policy_like_any_other(make_host: HostFactory, tmp_path: Path):
    async with asked_session(make_host, tmp_path) as session:
        alone = await session.call("c.count")
        user = User()
        attachment = session.attach(user)
        call = asyncio.create_task(session.call("c.count"))
        await user.is_asked.wait()
        attachment.detach()
        left = await call

    assert _refusal(alone) == (
        "c.count needs permission. No terminal or editor that may answer is attached to this session. "
        "In Python, give the session `ask`, a function that answers: ask=lambda question: True. "
        'To make all calls without asking, give permission="auto".'
    )
    assert "Every terminal and editor that was asked has left without answering." in _refusal(left)


@pytest.mark.promise("SES-04")
async def test_rules_of_the_settings_hold_in_the_mode_auto_of_an_application(
    make_host: HostFactory, tmp_path: Path
):
    rules = {"HOLDFAST_PERMISSION_DENY": "c.fail", "HOLDFAST_PERMISSION_ASK": "c.count"}
    async with make_host({"c": counter_entry()}, **rules) as host, host.session(cwd=tmp_path) as session:
        denied, asked = [await session.call(f"c.{name}") for name in ("fail", "count")]
        other = await session.call("c.sleep", {"seconds": 0})
        records = await audit_records(host, AuditKind.CALL)

    assert (denied.code, asked.code, other.ok) == ("NOT_PERMITTED", "NOT_PERMITTED", True)
    assert [record.outcome for record in records] == ["refused", "refused", "completed"]


@pytest.mark.promise("SES-04")
async def test_a_question_waits_as_long_as_the_setting_says(make_host: HostFactory, tmp_path: Path):
    async with asked_session(make_host, tmp_path, HOLDFAST_PERMISSION_WAIT="60") as session:
        call = asyncio.create_task(session.call("c.count"))
        async for stored in session.subscribe():
            if isinstance(stored.event, ToolCalled):
                break
        user = User()
        user.answer.set_result(Decision.ALLOW_ONCE)
        session.attach(user)

        assert (await call).text == "1"


async def test_turn_that_is_cancelled_withdraws_its_question(make_host: HostFactory, tmp_path: Path):
    async with asked_session(make_host, tmp_path) as session:
        user = User()
        attachment = session.attach(user)
        turn = asyncio.create_task(attachment.prompt(text_prompt("/call c.count")))
        await user.is_asked.wait()
        attachment.cancel()
        await turn
        prompts = [one async for one in _events(session) if isinstance(one, Prompted)]

    assert (user.log, len(prompts)) == (["asked", "told that it is settled"], 1)


async def _events(session: Session) -> AsyncIterator[object]:
    for stored in await session.subscribe().next_batch():
        yield stored.event


def _refusal(result: ToolResult) -> str:
    assert result.outcome == "refused"
    return result.message
