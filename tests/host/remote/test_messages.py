"""What a host and an attached process send each other."""

import msgspec
import pytest

from holdfast.host.remote import messages
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, Replied, ToolEnded
from holdfast.model.json import Json
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.store.types import StoredEvent
from holdfast.wire.messages import Malformed, PeerError, Raw, Request, parse_line, request_line

pytestmark = pytest.mark.promise("SES-01")


def test_event_arrives_with_its_origin():
    stored = StoredEvent(
        seq=7,
        at_microseconds=1,
        event=Replied(message_id="m", text="hi"),
        agent="reviewer",
        parent_call="call_1",
        cause="call_2",
    )

    assert messages.decode_stored(messages.encode_stored(stored)) == stored


def test_batch_of_events_may_have_more_values_than_a_message_from_a_stranger():
    numbers: list[Json] = [1] * 15_000
    ended = ToolEnded(call_id="c", outcome=Outcome.COMPLETED, structured={"numbers": numbers})
    event = messages.encode_stored(StoredEvent(seq=1, at_microseconds=1, event=ended))
    line = request_line(1, messages.EVENTS, messages.EventsParams(events=(event,) * 20))

    assert isinstance(parse_line(line, messages.LIMITS), Request)
    assert isinstance(parse_line(line, DEFAULT_LIMITS), Malformed)  # control


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HoldfastError(codes.NOT_PERMITTED, "No.", hint="Ask."), codes.NOT_PERMITTED),
        (HoldfastError(codes.TOO_LARGE, "Too long."), codes.TOO_LARGE),
    ],
)
def test_error_keeps_its_code_message_and_details(error: HoldfastError, code: codes.Code):
    sent = messages.to_wire_error(error)
    received = messages.from_wire_error(
        PeerError(sent.rpc_code, sent.message, Raw(msgspec.json.encode(sent.data)))
    )

    assert (received.code, received.message, received.details) == (code, error.message, error.details)


@pytest.mark.parametrize(
    ("rpc_code", "expected"),
    [(-32005, codes.CONNECTION_CLOSED), (-32603, codes.PEER_ERROR)],
    ids=["closing", "crashed"],
)
def test_error_without_a_code_comes_from_the_connection(rpc_code: int, expected: codes.Code):
    assert messages.from_wire_error(PeerError(rpc_code, "It failed.")).code is expected
