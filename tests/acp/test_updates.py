"""Events as ACP updates."""

from typing import Any

import pytest

from holdfast.acp.content import editor_block
from holdfast.acp.updates import Updates
from holdfast.model.event import (
    Decision,
    Event,
    ModeChanged,
    Origin,
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
from tests.journeys.schema import definition_validator

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
def test_every_update_matches_the_protocol_schema(event: Event, kinds: list[str]):
    updates = Updates().for_event(event)

    assert [update["sessionUpdate"] for update in updates] == kinds
    for update in updates:
        definition_validator("SessionUpdate").validate(update)


@pytest.mark.promise("ACP-09")
def test_call_has_its_title_kind_location_and_input():
    assert Updates().for_event(CALLED) == [
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
    ]


DIFF: Any = {"diff": {"path": "/x", "old_text": "a", "new_text": "b"}}
SHOWN: Any = {"type": "text", "text": "what it returned"}


@pytest.mark.parametrize(
    ("server", "content"),
    [
        ("files", [{"type": "diff", "path": "/x", "oldText": "a", "newText": "b"}]),
        ("Files", [{"type": "content", "content": SHOWN}]),
        ("other", [{"type": "content", "content": SHOWN}]),
    ],
)
def test_only_the_built_in_file_tools_can_show_a_diff(server: str, content: Any):
    updates = Updates("/project")
    updates.for_event(ToolCalled(call_id="c", server=server, tool="write", arguments={}, kind="edit"))
    updates.for_event(ToolCalled(call_id="d", server="files", tool="write", arguments={}, kind="edit"))
    ended = ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=(SHOWN,), structured=DIFF)
    (update,) = updates.for_event(ended)

    assert (update["content"], update["rawOutput"]) == (content, DIFF)


@pytest.mark.parametrize(
    ("server", "path", "expected"),
    [
        ("files", "a.txt", "/project/a.txt"),
        ("files", "./src/../a.txt", "/project/a.txt"),
        ("files", "/other/a.txt", "/other/a.txt"),
        ("other", "/other/a.txt", "/other/a.txt"),
        ("other", "a.txt", None),  # relative to a folder that only that server knows
        ("files", "", None),
        ("files", 5, None),
    ],
)
def test_relative_paths_of_the_file_tools_are_resolved_against_the_session_folder(
    server: str, path: Any, expected: str | None
):
    called = ToolCalled(call_id="c", server=server, tool="read", arguments={"path": path})
    (update,) = Updates("/project").for_event(called)

    assert update.get("locations") == (None if expected is None else [{"path": expected}])


def test_usage_includes_its_cost():
    usage: Any = {"used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "EUR"}}
    (update,) = Updates().for_event(TurnEnded(turn_id="t", reason=StopReason.END_TURN, usage=usage))

    assert update == {"sessionUpdate": "usage_update", **usage}


@pytest.mark.promise("ACP-04", "STO-03")
def test_interrupted_call_is_replayed_as_failed():
    updates = Updates("/")
    events = [CALLED, ToolStarted(call_id="c"), TurnEnded(turn_id="t", reason=StopReason.INTERRUPTED)]
    sent = [update for event in events for update in updates.for_event(event)]

    assert [update.get("status") for update in sent] == ["pending", "in_progress", "failed", None]
    assert sent[-1]["content"]["text"] == "This turn was interrupted before it ended."


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "data": "x"},
        {"type": "resource", "resource": {"uri": "x"}},
        {"type": "resource_link", "uri": "x"},
        {"type": "text", "text": "x", "annotations": {"audience": ["unknown"]}},
        {},
    ],
)
def test_malformed_block_is_shown_as_its_json_text(block: Any):
    definition_validator("ContentBlock").validate(editor_block(block))
    assert editor_block(block)["type"] == "text"


@pytest.mark.promise("TEAM-06")
def test_what_a_sub_agent_does_is_shown_in_the_call_that_it_works_for():
    updates, origin = Updates(), Origin(agent="reader-1", parent_call="parent")
    updates.for_event(ToolCalled(call_id="parent", server="agents", tool="delegate", arguments={}))
    shown = [
        updates.for_sub_agent(event, origin)
        for event in (
            Replied(message_id="m", text="I read"),
            Replied(message_id="m", text=" it.\n"),
            ToolCalled(call_id="inner", server="files", tool="read", arguments={}),
            ToolEnded(call_id="inner", outcome=Outcome.COMPLETED),
        )
    ]

    assert shown[0] == shown[3] == []
    assert [update["toolCallId"] for sent in shown for update in sent] == ["parent", "parent"]
    assert shown[2][0]["content"][0]["content"]["text"] == "I read it.\n\n● reader-1: files.read\n"
