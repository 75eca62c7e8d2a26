"""Conversations that go on: after a cancel, after `kill -9`, and with another model."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from holdfast import Agent, Host, JsonObject, OpenOptions, Session, TurnContext
from holdfast.agent.model.usage import sum_usage
from holdfast.events import StopReason, TurnEnded
from holdfast.settings import Settings
from holdfast.testing.scripted_model import (
    Answer,
    Call,
    Hang,
    ModelRequest,
    ScriptedModel,
    Text,
    Think,
    answer,
)
from holdfast.testing.scripted_model.formats import number_calls, stream
from holdfast.testing.scripted_model.request import WireFormat
from tests.agent.model.sessions import NOTHING, PREFIXES, conversation, model_settings

pytestmark = pytest.mark.anyio

ALL_EVENTS = os.environ.get("HOLDFAST_EVERY_EVENT") == "1"
"""Whether to interrupt an answer after each of its events, and not only after some of them."""
SIGNATURE = "EqQBCgIYAhIkMGU+/=="
LONG = (
    Think("A longer thought than that.", signature=SIGNATURE),
    Text("Some words that are said."),
    Call("files__list"),
)


CUT = (Think("Not signed yet, and cut", signature="x"), Text("half"))
FORMATS: dict[str, WireFormat] = dict(zip(PREFIXES, WireFormat, strict=True))


def points_in(prefix: str, parts: tuple[Text | Think | Call, ...]) -> list[int]:
    """Where to interrupt an answer with these parts: before each event, or only before some of them and the last one."""
    answered = number_calls(Answer(parts=parts), itertools.count(1))
    count = len([*stream(FORMATS[prefix], answered, "gpt-5", 1)])
    return [*range(count)] if ALL_EVENTS else [2, count // 2, count - 1]


def seen(request: ModelRequest) -> list[tuple[str, str, str]]:
    """The conversation of a request, without the results of tools."""
    return [
        (message.role, message.text, message.signature)
        for message in request.messages
        if message.role != "tool"
    ]


@pytest.mark.promise("AGT-03")
@pytest.mark.promise("AGT-04")
@pytest.mark.promise("AGT-12")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_turn_that_is_cancelled_at_any_event_ends_at_once_and_the_next_one_goes_on(
    tmp_path: Path, prefix: str
):
    points = points_in(prefix, LONG)
    script = [step for point in points for step in (Answer(parts=LONG, hold_after=point), answer("Next."))]
    async with conversation(tmp_path, script, prefix) as talk:
        for number, _ in enumerate(points, start=1):
            turn = asyncio.create_task(talk.session.prompt("Begin"))
            await talk.endpoint.wait_held(number)
            talk.session.cancel()
            assert (await turn).reason is StopReason.CANCELLED
            assert (await talk.session.prompt("Go on")).reason is StopReason.END_TURN
        ended = [event for event in await talk.events() if isinstance(event, TurnEnded)]

    assert [event.usage["requests"] for event in ended] == [1] * 2 * len(points)
    for request in talk.endpoint.requests[1::2]:
        cut = [text for role, text, _ in seen(request) if role == "assistant" and text != "Next."]
        assert all("Some words that are said.".startswith(text.removesuffix(" […]")) for text in cut)
        assert "thinking" not in {role for role, _, _ in seen(request)}
        assert "thought" not in str(
            request.body["messages"] if "messages" in request.body else request.body["input"]
        )


async def cancel_seconds(session: Session, begun: Callable[[], Awaitable[object]]) -> float:
    """How long a turn takes to end after it was cancelled."""
    loop = asyncio.get_running_loop()
    turn = asyncio.create_task(session.prompt("Begin"))
    await begun()
    cancelled = loop.time()
    session.cancel()
    assert (await turn).reason is StopReason.CANCELLED
    return loop.time() - cancelled


@pytest.mark.promise("AGT-03")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_cancelling_closes_the_connection_and_takes_hardly_longer_than_without_a_model(
    tmp_path: Path, prefix: str
):
    begun = asyncio.Event()

    class Waits(Agent):
        async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

    tries = 4
    script = [step for _ in range(tries) for step in (Hang(), Answer(parts=LONG, hold_after=2))]
    async with conversation(tmp_path, script, prefix) as talk:
        endpoint = talk.endpoint
        taken = [
            await cancel_seconds(talk.session, partial(endpoint.wait_held, number + 1))
            for number in range(2 * tries)
        ]
        await endpoint.wait_abandoned(2 * tries)
        async with talk.host.session(cwd=tmp_path, agent=Waits()) as control:
            usual: list[float] = []
            for _ in range(tries):
                begun.clear()
                usual.append(await cancel_seconds(control, begun.wait))

    # The quickest of several: a busy machine makes each of them slower.
    assert min(taken) - min(usual) < 0.1


async def killed_host(
    endpoint: ScriptedModel, settings: Settings, project: Path, *stored: str, during_call: bool = False
) -> str:
    """Prompt in a process of its own, and kill it during the model's answer or a call. Returns the session's id."""
    held, running = endpoint.held, project / "running"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.model.prompt_once"),
        *(str(settings.data_dir), str(project), endpoint.base_url, settings.model.name, *stored),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    session_id = (await child.stdout.readline()).decode().strip()

    async def begun() -> None:
        while during_call and not running.exists():
            await asyncio.sleep(0.01)
        if not during_call:
            await endpoint.wait_held(held + 1)

    ready, ended = asyncio.create_task(begun()), asyncio.create_task(child.wait())
    await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
    assert not ended.done(), "the host ended by itself"
    child.send_signal(signal.SIGKILL)
    await ended
    return session_id


async def prompt_again(settings: Settings, session_id: str, project: Path) -> str:
    """Resume the session for one prompt. Returns what its agent has used in all turns."""
    async with Host(settings=settings) as host:
        session = await host.reopen(session_id, OpenOptions(cwd=project, mode=None))
        await session.prompt("Are you there?")
        await session.close()
        return (await sum_usage(host.store.events(session.context.session_id)))[""].describe()


@pytest.mark.slow
@pytest.mark.promise("AGT-04", "AGT-12")
@pytest.mark.parametrize(
    ("prefix", "point"),
    [(prefix, point) for prefix in PREFIXES for point in points_in(prefix, CUT)]
    if ALL_EVENTS
    else [("anthropic", 5)],
)
async def test_a_killed_host_s_conversation_continues_with_its_signatures(
    tmp_path: Path, prefix: str, point: int
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("alpha")
    script = [
        answer(Think("First, read.", signature=SIGNATURE), "I read.", Call("files__read", {"path": "a.txt"})),
        Answer(parts=CUT, hold_after=point),
        answer("I am back."),
    ]
    async with ScriptedModel(script) as endpoint:
        settings = model_settings(tmp_path, endpoint, prefix)
        session_id = await killed_host(endpoint, settings, project)
        used = await prompt_again(settings, session_id, project)

    before, after = endpoint.requests[1], endpoint.requests[2]
    roles = [message.role for message in after.messages]
    assert seen(after)[: len(seen(before))] == seen(before)
    assert [message.signature for message in after.messages if message.role == "thinking"] == [
        message.signature for message in before.messages if message.role == "thinking"
    ]
    assert "Not signed yet" not in after.raw.decode()
    assert roles.count("tool") == 1
    assert "alpha" in next(message.text for message in after.messages if message.role == "tool")
    assert seen(after)[-1] == ("user", "Are you there?", "")
    assert used.startswith("200 tokens in, 40 out, 2 requests, 1 call"), "with what the killed host stored"
    if prefix != "openai-chat":
        assert SIGNATURE in after.raw.decode()


@pytest.mark.slow
@pytest.mark.promise("AGT-04")
@pytest.mark.parametrize(
    ("prefix", "point"),
    [(prefix, point) for prefix in PREFIXES for point in points_in(prefix, CUT)]
    if ALL_EVENTS
    else [("openai", 6)],
)
async def test_a_host_that_is_killed_in_its_first_answer_and_then_during_calls_goes_on(
    tmp_path: Path, prefix: str, point: int
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("alpha")
    script = [
        Answer(parts=CUT, hold_after=point),
        answer(
            Think("Then wait.", signature=SIGNATURE),
            Call("files__read", {"path": "a.txt"}),
            Call("slow__wait"),
        ),
        answer("I am back."),
    ]
    async with ScriptedModel(script) as endpoint:
        settings = model_settings(tmp_path, endpoint, prefix)
        session_id = await killed_host(endpoint, settings, project)
        await killed_host(endpoint, settings, project, session_id, during_call=True)
        await prompt_again(settings, session_id, project)

    after = endpoint.requests[2]
    said = [message for message in after.messages if message.role == "user"]
    calls = [call for message in after.messages for call in message.calls]
    results = {message.call_id: message.text for message in after.messages if message.role == "tool"}
    assert [message.text for message in said] == ["Read it", "Read it", "Are you there?"]
    assert "Not signed yet" not in after.raw.decode()
    assert [tool for _, tool in calls] == ["files__read", "slow__wait"]
    assert [*results] == [call_id for call_id, _ in calls], "each call has one result"
    assert "INTERRUPTED" in results[calls[1][0]]
    if prefix != "openai-chat":
        assert SIGNATURE in after.raw.decode()


async def test_another_model_does_not_get_the_thoughts_of_the_first(tmp_path: Path):
    script = [answer(Think("Mine.", signature=SIGNATURE), "One."), answer("Two.")]
    async with conversation(tmp_path, script, "anthropic") as talk:
        await talk.session.prompt("First")
        await talk.session.prompt("/model openai-chat:other")
        await talk.session.prompt("Second")

    assert [request.model for request in talk.endpoint.requests] == ["gpt-5", "other"]
    assert seen(talk.endpoint.requests[1]) == [
        ("user", "First", ""),
        ("assistant", "One.", ""),
        ("user", "Second", ""),
    ]


@pytest.mark.promise("AGT-03")
@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_what_the_user_saw_of_a_broken_answer_is_in_the_model_s_history(tmp_path: Path, how: str):
    parts = (Text("some words", chunk=5), Text("more"))
    broken = Answer(parts=parts, cut_after=3) if how == "cut" else Answer(parts=parts, hold_after=3)
    script = [broken, answer("Second."), answer("Last.")]
    idle = {"idle_seconds": 5} if how == "silent" else NOTHING
    async with conversation(tmp_path, script, model=idle) as talk:
        for words in ("One", "Two", "Three"):
            await talk.session.prompt(words)
        replies = await talk.replies()

    said = [(role, text) for role, text, _ in seen(talk.endpoint.requests[-1])]
    _, first = said[1]
    assert [role for role, _ in said] == ["user", "assistant"] * 2 + ["user"]
    assert first.endswith(" […]")
    assert first.removesuffix(" […]") in replies
    assert "ended the connection" not in str(said)
    assert "made no progress" not in str(said)
