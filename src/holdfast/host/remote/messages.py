"""The messages between a host and a process that is attached to one of its sessions, over a Unix socket.

The connection is JSON-RPC. The client sends `attach`, then `prompt`, `cancel`, `set_mode`, `lower_trust` and `describe`. The
host sends `events`, `request_permission` and `elicit`, each as a request: its answer says that the client has handled it.
When the host has no more events to send, it sends `end` with the reason, and closes the connection.
"""

from typing import Annotated, Any, cast

import msgspec

from holdfast.host.describe_session import SessionDescription
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import UnknownEvent
from holdfast.model.event_text import FileChange
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import Limits
from holdfast.store.event_codec import decode_event, encode_event
from holdfast.store.types import StoredEvent
from holdfast.wire.messages import Notification, PeerError, Raw, Request
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

PROTOCOL_VERSION = 1
ATTACH, PROMPT, CANCEL, DESCRIBE = "attach", "prompt", "cancel", "describe"
SET_MODE, LOWER_TRUST = "set_mode", "lower_trust"
EVENTS, REQUEST_PERMISSION, ELICIT, END = "events", "request_permission", "elicit", "end"
MAX_MASKED_LENGTH = 4000
"""The text of a longer prompt is not returned, not even masked."""
MAX_BATCH_BYTES = 1024 * 1024
LIMITS = Limits(line_bytes=64 * 1024 * 1024, depth=1024, digits=4300, values=10_000_000)
"""Higher than for other peers: both ends belong to the same user, and a batch of events may have many values."""


class AttachParams(msgspec.Struct, kw_only=True, rename="camel"):
    """Attach to a session: after which event to begin, whether the client may answer questions, and which kinds it can show."""

    version: int
    session_id: str
    door: str
    """What the client is: a `DoorKind`. The settings limit the mode for each."""
    after: Annotated[int, msgspec.Meta(ge=0)] | None = 0
    """The number after which the events begin; None for new events only."""
    may_answer: bool = True
    permission: bool = False
    elicitation: bool = False
    elicitation_url: bool = False
    trust: str | None = None
    """The highest trust that the client accepts; None for any."""
    roots: tuple[str, ...] = ()
    """The folders that the client expects the session to have."""


class AttachResult(msgspec.Struct, kw_only=True, rename="camel"):
    """The session's description when the client attached to it."""

    version: int
    last_seq: int
    """The number of the session's last event."""
    max_mode: str
    """The highest mode that this client can choose."""
    description: SessionDescription


class PromptParams(msgspec.Struct, kw_only=True, rename="camel"):
    """A prompt for the session."""

    blocks: tuple[JsonObject, ...]
    is_cancelled: bool = False
    """Whether the user has already cancelled the prompt. If so, it is stored but not answered."""


class PromptResult(msgspec.Struct, kw_only=True, rename="camel"):
    """How the turn ended."""

    stop_reason: str
    last_seq: int
    """The number of the turn's last event."""
    code: str = ""
    """Why the turn failed; empty if it did not."""
    message: str = ""
    masked: str = ""
    """The text of the prompt with the session's secrets masked; empty if it is long."""


class ModeParams(msgspec.Struct, kw_only=True):
    """The mode to use from now on."""

    mode: str


class DescribeParams(msgspec.Struct, kw_only=True, rename="camel"):
    """Ask for the session's description, after waiting for its servers for at most this long."""

    wait_seconds: float = 0.0


class EndParams(msgspec.Struct, kw_only=True, rename="camel"):
    """Why no more events follow."""

    reason: str
    is_session_closed: bool = False
    """Whether the session was closed, and all of its events were sent."""


class WireEvent(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """A stored event, with its body as the store encodes it. The fields are those of `StoredEvent`."""

    seq: int
    at: int
    """In microseconds since 1970."""
    kind: str
    body: Raw
    agent: str = ""
    parent_call: str = ""
    cause: str = ""


class EventsParams(msgspec.Struct, kw_only=True):
    """The next events, in order."""

    events: tuple[WireEvent, ...]


class PermissionParams(msgspec.Struct, kw_only=True, rename="camel"):
    """A question whether a call may run, with the arguments as they may be shown."""

    call_id: str
    server: str
    tool: str
    arguments: Raw
    title: str
    can_remember: bool
    remembers_arguments: bool = False
    always_scope: str
    change: FileChange | None = None


class PermissionResult(msgspec.Struct, kw_only=True):
    """The user's answer: a `Decision`."""

    decision: str


def decode_params(message: Request | Notification, kind: type[Any]) -> Any:
    """Decode the params of a message; raise BAD_ARGUMENT if they are invalid."""
    try:
        return make_decoder(kind)(message.params)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method}: {error}.") from None


def to_wire_error(error: HoldfastError) -> PeerError:
    """Encode an error for the other end, with the name of its code."""
    return PeerError(error.code.rpc_code, error.message, {**error.details, "code": error.code.name})


def from_wire_error(error: PeerError, unknown: Code = codes.PEER_ERROR) -> HoldfastError:
    """Decode an error from the other end. If it does not name a known code, use `unknown`."""
    if error.rpc_code == codes.CONNECTION_CLOSED.rpc_code:  # the other end was being closed
        unknown = codes.CONNECTION_CLOSED
    data: object = msgspec.json.decode(error.data) if error.data else None
    details = cast("dict[str, Json]", data) if isinstance(data, dict) else {}
    code = codes.find(str(details.pop("code", ""))) or unknown
    return HoldfastError(code, error.message, **details)


def encode_stored(stored: StoredEvent) -> WireEvent:
    """Encode a stored event for a client."""
    event = stored.event
    if isinstance(event, UnknownEvent):  # if its body is damaged, at least its kind is sent
        kind, body = event.kind, event.body if _is_line_of_json(event.body) else b"{}"
    else:
        kind, body = encode_event(event)
    return WireEvent(
        seq=stored.seq,
        at=stored.at_microseconds,
        kind=kind,
        body=Raw(body),
        agent=stored.agent,
        parent_call=stored.parent_call,
        cause=stored.cause,
    )


def _is_line_of_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except DECODE_ERRORS:
        return False
    return b"\n" not in body


def decode_stored(event: WireEvent) -> StoredEvent:
    """Decode an event that a host sent."""
    return StoredEvent(
        seq=event.seq,
        at_microseconds=event.at,
        event=decode_event(event.kind, bytes(event.body)),
        agent=event.agent,
        parent_call=event.parent_call,
        cause=event.cause,
    )
