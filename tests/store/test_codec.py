"""The event codec: events of older versions can always be decoded."""

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.event import (
    Decision,
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
    event_kind,
)
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust
from holdfast.store.event_codec import decode_event, encode_event
from tests.store.sessions import raises_code

WRITTEN = Path(__file__).parent / "events_v2.jsonl"
EVENTS: tuple[Event, ...] = (
    SessionOpened(cwd="/a", roots=("/a", "/b"), trust_level=Trust.DIRECT),
    SessionClosed(reason="asked"),
    ServersResolved(
        servers=("files",), refusals=(Refusal(server="shell", stage=Stage.ADMIT, reason="Not for it."),)
    ),
    TrustLowered(trust_level=Trust.SANDBOXED),
    Titled(title="Größe ☃"),
    ModeChanged(mode="ask"),
    Prompted(
        turn_id="turn_1",
        message_id="msg_1",
        blocks=({"type": "text", "text": "hi\n\x00"}, {"n": [1, 2.5, None]}),
    ),
    Replied(message_id="msg_2", text="hello"),
    Thought(message_id="msg_3", text="hm"),
    Planned(entries=({"content": "step", "status": "pending"},)),
    ToolCalled(
        call_id="call_1", server="files", tool="read", arguments={"path": "x"}, title="Read x", kind="read"
    ),
    ToolStarted(call_id="call_1"),
    ToolEnded(
        call_id="call_1",
        outcome=Outcome.FAILED,
        content=({"type": "text", "text": "no"},),
        structured={"deep": [{"er": [True]}]},
        code="NOT_RUNNING",
    ),
    PermissionDecided(call_id="call_1", decision=Decision.ALLOW_ONCE),
    TurnEnded(turn_id="turn_1", reason=StopReason.END_TURN, usage={"tokens": 12}),
    ModelResponded(
        model="anthropic:m",
        message={"parts": [{"part_kind": "text", "content": "hello"}], "kind": "response"},
        calls={"toolu_1": "call_1"},
        usage={"input_tokens": 10},
    ),
    HistoryCompacted(summary="They said hello.", kept_from="turn_1"),
    MessageSent(message_id="inbox_1", target="sess_2", text="Are you done?"),
    MessageReceived(
        turn_id="turn_2", message_id="inbox_2", sender="sess_3", sender_title="Review", text="Yes."
    ),
    UnknownEvent(kind="danced", body=b'{"steps": [1, 2]}'),
)


def test_events_of_older_versions_can_be_decoded() -> None:
    written = [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]

    assert tuple(decode_event(line["kind"], json.dumps(line["body"]).encode()) for line in written) == EVENTS


def test_examples_cover_every_event_type() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_encoded_event_decodes_to_the_same_event(event: Event) -> None:
    assert decode_event(*encode_event(event)) == event


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    structured=json_values, content=st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3)
)
def test_any_tool_result_decodes_to_the_same_event(
    structured: object, content: list[dict[str, object]]
) -> None:
    event = ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=tuple(content), structured=structured)  # type: ignore[arg-type]

    assert decode_event(*encode_event(event)) == event


def test_unknown_fields_are_ignored() -> None:
    assert decode_event("titled", b'{"title":"t","colour":"red"}') == Titled(title="t")


@pytest.mark.promise("SES-08")
@pytest.mark.parametrize("body", [b"{}", b'{ "a" : 1.50 }', b"[]", b"\xff"])
def test_event_of_an_unknown_kind_is_decoded_unchanged(body: bytes) -> None:
    assert decode_event("danced", body) == UnknownEvent(kind="danced", body=body)


def test_names_of_kinds_are_not_those_of_classes() -> None:
    kinds = {event_kind(event) for event in EVENTS}

    assert kinds.isdisjoint(type(event).__name__ for event in EVENTS)
    assert len(kinds) == len(EVENTS)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"title":1}', b"{}", b'{"title":"\xff"}'])
def test_damaged_event_raises_store_corrupt(body: bytes) -> None:
    with raises_code(codes.STORE_CORRUPT):
        decode_event("titled", body)
