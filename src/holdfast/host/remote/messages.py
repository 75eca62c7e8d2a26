"""The messages between a host and a process that is attached to one of its sessions, over a Unix socket.

The connection is JSON-RPC. The client sends `attach`, then `prompt`, `cancel`, `set_mode` and `describe`. The host sends
`events`, `request_permission` and `elicit`, each as a request: its answer says that the client has handled it.
"""

from typing import Any

import msgspec

from holdfast.host.describe_session import Description
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.store.codec import decode_event, encode_event
from holdfast.store.types import StoredEvent
from holdfast.wire.frame import Notification, Raw, Request

PROTOCOL_VERSION = 1
ATTACH, PROMPT, CANCEL, SET_MODE, DESCRIBE = "attach", "prompt", "cancel", "set_mode", "describe"
EVENTS, REQUEST_PERMISSION, ELICIT = "events", "request_permission", "elicit"
MAX_BATCH_BYTES = 1024 * 1024


class AttachParams(msgspec.Struct, kw_only=True, rename="camel"):
    """Attach to a session: from which event on, and what the client may and can do."""

    version: int
    session_id: str
    after: int = 0
    may_answer: bool = True
    permission: bool = False
    elicitation: bool = False


class AttachResult(msgspec.Struct, kw_only=True, rename="camel"):
    """The session's description when the client attached to it."""

    version: int
    last_seq: int
    description: Description


class PromptParams(msgspec.Struct, kw_only=True):
    """A prompt for the session."""

    blocks: tuple[JsonObject, ...]


class PromptResult(msgspec.Struct, kw_only=True, rename="camel"):
    """How the turn ended."""

    stop_reason: str
    last_seq: int


class ModeParams(msgspec.Struct, kw_only=True):
    """The mode to use from now on."""

    mode: str


class WireEvent(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """A stored event, as the store encodes it."""

    seq: int
    at: int
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


class PermissionResult(msgspec.Struct, kw_only=True):
    """The user's answer: a `Decision`."""

    decision: str


def decode_params(message: Request | Notification, kind: type[Any]) -> Any:
    """Decode the params of a message; raise BAD_ARGUMENT if they are invalid."""
    try:
        return msgspec.json.decode(message.params, type=kind)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method}: {error}.") from None


def encode_stored(stored: StoredEvent) -> WireEvent:
    """Encode a stored event for a client."""
    kind, body = encode_event(stored.event)
    return WireEvent(
        seq=stored.seq,
        at=stored.microseconds,
        kind=kind,
        body=Raw(body),
        agent=stored.agent,
        parent_call=stored.parent_call,
        cause=stored.cause,
    )


def decode_stored(event: WireEvent) -> StoredEvent:
    """Decode an event that a host sent."""
    return StoredEvent(
        seq=event.seq, microseconds=event.at, event=decode_event(event.kind, bytes(event.body))
    )
