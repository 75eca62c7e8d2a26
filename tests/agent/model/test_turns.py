"""Turns of a session with a model, in the formats of all endpoints."""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from holdfast.events import (
    Event,
    ModelResponded,
    Outcome,
    Prompted,
    Replied,
    ServersResolved,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.testing.scripted_model import Answer, Call, RawAnswer, Text, Think, answer
from holdfast.testing.scripted_model.formats import stream
from holdfast.testing.scripted_model.request import WireFormat
from tests.agent.model.sessions import PREFIXES, conversation, text

pytestmark = pytest.mark.anyio

TWO_CALLS = (
    answer(
        Think("Both files, then.", signature="c2lnbmF0dXJl"),
        "I read both.",
        Call("files__read", {"path": "a.txt"}),
        Call("files__read", {"path": "b.txt"}),
    ),
    Answer(parts=(Text("They say alpha and beta."),), delay=0.2),
)


SEQ = "SELECT seq FROM events WHERE seq = ?"


def describe(event: Event) -> Any:
    """An event without what differs between two runs."""
    match event:
        case Replied(text=words):
            return "replied", words
        case Thought(text=words):
            return "thought", words
        case ToolCalled(tool=tool, arguments=arguments):
            return tool, str(arguments)
        case ToolEnded(outcome=outcome):
            return "ended", outcome
        case TurnEnded(reason=reason, usage=usage):
            return reason, {
                name: usage[name] for name in ("requests", "calls", "input_tokens", "output_tokens")
            }
        case _:
            return type(event)


def described(events: list[Event]) -> Iterator[object]:
    """All events. Pieces of one text are joined, and what two calls do at once is sorted."""
    kinds = (Replied, Thought, (ToolStarted, ToolEnded))
    for kind, group in groupby(
        events, lambda event: next((n for n, kind in enumerate(kinds) if isinstance(event, kind)), None)
    ):
        found = [*map(describe, group)]
        match kind:
            case 0 | 1:
                yield "replied" if kind == 0 else "thought", "".join(words for _, words in found)
            case 2:
                yield from sorted(map(str, found))
            case _:
                yield from found


@pytest.mark.promise("AGT-01")
@pytest.mark.promise("AGT-11")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_every_format_gives_the_same_events_in_the_same_order(tmp_path: Path, prefix: str):
    async with conversation(tmp_path, TWO_CALLS, prefix) as talk:
        (tmp_path / "project" / "a.txt").write_text("alpha")
        (tmp_path / "project" / "b.txt").write_text("beta")
        turn = talk.session.prompt(text("What do they say?"))
        with closing(
            sqlite3.connect(f"file:{talk.host.settings.data_dir}/holdfast.db?mode=ro", uri=True)
        ) as other:
            is_stored = [
                [stored.seq] == [seq for (seq,) in other.execute(SEQ, (stored.seq,))] async for stored in turn
            ]
        events = await talk.events()

    assert len(is_stored) == len(events) - 2, "all events but those of the opening were published"
    assert all(is_stored), "another connection found each event when it was published"
    assert turn.result.reason is StopReason.END_TURN
    assert [*described(events)] == [
        SessionOpened,
        ServersResolved,
        Prompted,
        Titled,
        ("thought", "Both files, then."),
        ("replied", "I read both."),
        ModelResponded,
        ("read", "{'path': 'a.txt'}"),
        ("read", "{'path': 'b.txt'}"),
        *sorted(
            map(str, [ToolStarted, ToolStarted, ("ended", Outcome.COMPLETED), ("ended", Outcome.COMPLETED)])
        ),
        ("replied", "They say alpha and beta."),
        ModelResponded,
        (StopReason.END_TURN, {"requests": 2, "calls": 2, "input_tokens": 200, "output_tokens": 40}),
    ]
    replied = [event for event in events if isinstance(event, Replied)]
    texts = {
        message_id: "".join(event.text for event in pieces)
        for message_id, pieces in groupby(replied, lambda event: event.message_id)
    }
    assert [*texts.values()] == ["I read both.", "They say alpha and beta."], "each message has one id"
    results = talk.endpoint.requests[1].tool_results
    assert [*results] == ["call_1", "call_2"]
    assert "alpha" in results["call_1"]
    assert "beta" in results["call_2"]


@pytest.mark.promise("AGT-01")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_thought_that_ends_as_a_secret_begins_is_published_before_the_text_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
):
    monkeypatch.setenv("MY_KEY", "sk-canary-5d3c01")
    script = [answer(Think("It grows"), "Yes, it grows", Call("files__list", {"path": "."})), answer("Bye.")]
    async with conversation(tmp_path, script, prefix, model={"api_key_env": "MY_KEY"}) as talk:
        await talk.session.prompt("Go")
        seen = [*described(await talk.events())]

    thought = seen.index(("thought", "It grows"))
    assert seen[thought + 1 : thought + 3] == [("replied", "Yes, it grows"), ModelResponded]


@pytest.mark.promise("AGT-01")
async def test_calls_that_cannot_be_made_are_shown_and_recorded(tmp_path: Path):
    """Otherwise an editor shows nothing, although the model tried to use a tool that its agent may not use."""
    script = (
        answer(Call("files__remove", {"path": "a.txt"}), Call("files__list", {"path": "."})),
        answer("Sorry."),
    )
    async with conversation(tmp_path, script) as talk:
        await talk.session.prompt("Remove a.txt")
        events = await talk.events()
        results = talk.endpoint.requests[-1].tool_results

    ended = {event.call_id: (event.outcome, event.code) for event in events if isinstance(event, ToolEnded)}
    calls = [
        (event.server, event.tool, event.title, ended[event.call_id])
        for event in events
        if isinstance(event, ToolCalled)
    ]
    assert ("", "files__remove", "files__remove", (Outcome.REFUSED, "UNKNOWN_TOOL")) in calls
    assert [outcome for *_, (outcome, _) in calls].count(Outcome.COMPLETED) == 1
    assert "There is no tool 'files__remove'." in results["call_1"]


RESULTS_SERVER = """
import json, sys

RESULTS = {
    "structured": {"content": [], "structuredContent": {"sum": 42}},
    "nothing": {"content": []},
    "failure": {"content": [], "isError": True},
}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}
    },
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in RESULTS]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = ANSWERS.get(message["method"]) or RESULTS.get(message.get("params", {}).get("name"), {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.promise("AGT-04")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_results_without_text_reach_the_model_and_again_after_a_restart(tmp_path: Path, prefix: str):
    program = tmp_path / "results.py"
    program.write_text(RESULTS_SERVER)
    calls = [Call(f"raw__{name}") for name in ("structured", "nothing", "failure")]
    script = [answer(*calls), answer("Fine."), answer("Still fine.")]
    servers = {"raw": {"command": sys.executable, "args": [str(program)]}}
    async with conversation(tmp_path, script, prefix, {"servers": servers}) as talk:
        await talk.session.prompt("Go")
        talk.session.agent._history = None  # type: ignore[attr-defined]
        await talk.session.prompt("Go on")
        results = [
            [message.text for message in request.messages if message.role == "tool"]
            for request in talk.endpoint.requests[1:]
        ]

    assert results == [['{"sum":42}', "(The result is empty.)", "Failed: (The result is empty.)"]] * 2


async def test_the_first_words_of_an_answer_are_published_before_the_rest_is_decoded(tmp_path: Path):
    words = Answer(parts=(Text("word " * 30, chunk=5),))
    at_once = RawAnswer(body=b"".join(stream(WireFormat.CHAT, words, "gpt-5", 1)))
    async with conversation(tmp_path, [at_once]) as talk:
        events = talk.session.subscribe(talk.session.record.events.last)
        turn = asyncio.ensure_future(talk.session.prompt("Go"))
        received: list[Event] = []
        while not any(isinstance(event, Replied) for event in received):
            received += [stored.event for stored in await events.next_batch()]
        waiting = talk.session.record._writer.appender._queue  # pyright: ignore[reportPrivateUsage]
        decoded = len(waiting)
        await turn

    assert (received[-1], decoded) == (Replied(message_id=received[-1].message_id, text="word "), 0)  # type: ignore[union-attr]
