"""Events as an editor sees them."""

from typing import Any

import pytest

from holdfast.acp.blocks import shown
from holdfast.acp.telling import Telling
from holdfast.acp.translate import INTERRUPTED, updates
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.trust import Trust
from tests.journeys.schema import named

CALLED = ToolCalled(call_id="c", server="s", tool="t", arguments={"path": "/x"}, title="T", kind="edit")
EVENTS: list[tuple[Event, list[str]]] = [
    (Replied(message_id="m", text="hi"), ["agent_message_chunk"]),
    (Thought(message_id="m", text="hm"), ["agent_thought_chunk"]),
    (Prompted(turn_id="t", message_id="m", blocks=({"type": "text", "text": "a"}, {"type": "text", "text": "b"})), ["user_message_chunk"] * 2),
    (Planned(entries=({"content": "x"}, {"content": "y", "priority": "high", "status": "completed"})), ["plan"]),
    (CALLED, ["tool_call"]),
    (ToolStarted(call_id="c"), ["tool_call_update"]),
    (ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=({"type": "text", "text": "x"},)), ["tool_call_update"]),
    (ToolEnded(call_id="c", outcome=Outcome.CANCELLED, content=({"type": "hologram"},)), ["tool_call_update"]),
    (Titled(title="T"), ["session_info_update"]),
    (ModeChanged(mode="auto"), ["current_mode_update"]),
    (TurnEnded(turn_id="t", reason=StopReason.INTERRUPTED), ["agent_message_chunk"]),
    (TurnEnded(turn_id="t", reason=StopReason.END_TURN), []),
    (TurnEnded(turn_id="t", reason=StopReason.END_TURN, usage={"used": 1, "size": 2}), ["usage_update"]),
    (SessionOpened(cwd="/", roots=("/",), trust_level=Trust.DIRECT), []),
    (SessionClosed(reason="closed"), []),
    (PermissionDecided(call_id="c", decision=Decision.REJECT), []),
]  # fmt: skip


@pytest.mark.promise("ACP-13")
@pytest.mark.parametrize(("event", "kinds"), EVENTS, ids=lambda value: type(value).__name__)
def test_every_update_is_what_the_schema_says(event: Event, kinds: list[str]):
    told = updates(event)

    assert [update["sessionUpdate"] for update in told] == kinds
    for update in told:
        named("SessionUpdate").validate(update)


@pytest.mark.promise("ACP-09")
def test_a_call_is_told_with_its_title_kind_place_and_input():
    assert updates(CALLED) == (
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "T",
            "name": "s.t",
            "kind": "edit",
            "status": "pending",
            "rawInput": {"path": "/x"},
            "locations": [{"path": "/x"}],
        },
    )


DIFF: Any = {"diff": {"path": "/x", "old_text": "a", "new_text": "b"}}
SAID: Any = {"type": "text", "text": "what it really said"}


@pytest.mark.parametrize(
    ("server", "content"),
    [
        ("files", [{"type": "diff", "path": "/x", "oldText": "a", "newText": "b"}]),
        ("Files", [{"type": "content", "content": SAID}]),
        ("other", [{"type": "content", "content": SAID}]),
    ],
)
def test_a_change_of_a_file_is_shown_as_a_diff_on_the_word_of_our_file_tools_only(server: str, content: Any):
    telling = Telling("/project")
    telling.of(ToolCalled(call_id="c", server=server, tool="write", arguments={}))
    telling.of(ToolCalled(call_id="d", server="files", tool="write", arguments={}))
    ended = ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=(SAID,), structured=DIFF)
    (update,) = telling.of(ended)

    assert (update["content"], update["rawOutput"]) == (content, DIFF)


@pytest.mark.parametrize(
    ("server", "path", "expected"),
    [
        ("files", "a.txt", "/project/a.txt"),
        ("files", "./src/../a.txt", "/project/a.txt"),
        ("files", "/other/a.txt", "/other/a.txt"),
        ("other", "/other/a.txt", "/other/a.txt"),
        ("other", "a.txt", None),  # who knows where a stranger begins
        ("files", "", None),
        ("files", 5, None),
    ],
)
def test_where_a_call_works_is_told_from_the_sessions_folder(server: str, path: Any, expected: str | None):
    called = ToolCalled(call_id="c", server=server, tool="read", arguments={"path": path})
    (update,) = Telling("/project").of(called)

    assert update.get("locations") == (None if expected is None else [{"path": expected}])


def test_a_usage_with_its_cost_is_told():
    usage: Any = {"used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "EUR"}}
    (update,) = updates(TurnEnded(turn_id="t", reason=StopReason.END_TURN, usage=usage))

    assert update == {"sessionUpdate": "usage_update", **usage}


@pytest.mark.promise("ACP-04", "STO-03")
def test_a_call_that_was_cut_off_is_replayed_as_failed():
    telling = Telling("/")
    events = [CALLED, ToolStarted(call_id="c"), TurnEnded(turn_id="t", reason=StopReason.INTERRUPTED)]
    told = [update for event in events for update in telling.of(event)]

    assert [update.get("status") for update in told] == ["pending", "in_progress", "failed", None]
    assert told[-1]["content"]["text"] == INTERRUPTED


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "data": "x"},
        {"type": "resource", "resource": {"uri": "x"}},
        {"type": "resource_link", "uri": "x"},
        {"type": "text", "text": "x", "annotations": {"audience": ["nobody"]}},
        {},
    ],
)
def test_a_block_that_no_editor_would_take_is_shown_as_its_text(block: Any):
    named("ContentBlock").validate(shown(block))
    assert shown(block)["type"] == "text"
