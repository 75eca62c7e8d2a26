"""The events of a session. They are stored, and every view of a session is built from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Refusal
from holdfast.model.trust import Trust


class Outcome(StrEnum):
    """How a tool call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class StopReason(StrEnum):
    """Why a turn ended."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Decision(StrEnum):
    """The user's answer to a permission request."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """The session was opened or reopened."""

    cwd: str
    roots: tuple[str, ...]
    trust_level: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The session was closed, and with it the links to its servers."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersResolved:
    """The session's servers were resolved: the names of those it can use, and the refusals."""

    servers: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    stage_seconds: dict[str, float] = field(default_factory=dict[str, float], compare=False)
    """How long each phase of opening the session took, before its servers were started: `plan`, `admit`, `store`."""
    server_seconds: dict[str, float] = field(default_factory=dict[str, float], compare=False)
    """By server: how long it took until it was started and its tools were listed, or until that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustLowered:
    """The session's trust was lowered."""

    trust_level: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Titled:
    """The session got a title."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged:
    """The permission mode was changed."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """The user sent a prompt, which starts a turn. `blocks` are its content blocks, with secrets masked."""

    turn_id: str
    message_id: str
    blocks: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The agent sent a part of a message."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The agent sent a part of its reasoning."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The agent sent a plan, which replaces the previous one."""

    entries: tuple[JsonObject, ...]


# The events of a call are structs: each call creates three of them, and a frozen dataclass takes several times as long.
class ToolCalled(msgspec.Struct, frozen=True, kw_only=True):
    """The agent requested a tool call."""

    call_id: str
    server: str
    tool: str
    arguments: JsonObject
    title: str = ""
    kind: str = "other"
    """What the tool does, in the terms of ACP, such as `read` or `edit`."""


class ToolStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The call was permitted and started."""

    call_id: str


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The call ended, with the result that the agent and the editor see."""

    call_id: str
    outcome: Outcome
    content: tuple[JsonObject, ...] = ()
    structured: Json = None
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDecided:
    """The user allowed or rejected a call."""

    call_id: str
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn ended."""

    turn_id: str
    reason: StopReason
    usage: JsonObject = field(default_factory=dict[str, Json])
    code: str = ""
    """Why the turn failed, such as `MODEL_UNAVAILABLE`; empty if it did not. The last reply has the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponded:
    """A model answered a request. This is the complete answer, in the form in which it is sent back to the provider.

    Users do not see this event: other events show the parts of the answer.
    """

    model: str
    message: JsonObject
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """The id of each call that the answer asks for, by the id that the model gave it."""
    usage: JsonObject = field(default_factory=dict[str, Json])
    """What the request used, such as `input_tokens` and `output_tokens`, and its cost in US dollars (`usd`) if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompacted:
    """The model sees a summary in place of the beginning of the conversation. All events stay stored."""

    summary: str
    kept_from: str
    """The id of the first turn that is not summarized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent:
    """An agent of the session sent a message to another session."""

    message_id: str
    target: str
    """The id of the other session."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A message from the agent of another session was delivered to this session, in this turn. It is never from the user."""

    turn_id: str
    message_id: str
    sender: str
    """The id of the other session."""
    sender_title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """An event of a kind that this version does not know. A newer version stored it."""

    kind: str
    body: bytes
    """Its fields, as a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which agent of a session an event belongs to, which call that agent works for, and which message started the turn."""

    agent: str = ""
    """The id of the sub-agent that the event is about; empty for the main agent."""
    parent_call: str = ""
    """The id of the call that the sub-agent works for; empty for the main agent."""
    cause: str = ""
    """The id of the message of another session that started the turn; empty if a prompt did, and for sub-agents."""


MAIN_AGENT_ORIGIN = Origin()
"""The origin of events that are about the main agent."""

Event: TypeAlias = (
    SessionOpened
    | SessionClosed
    | ServersResolved
    | TrustLowered
    | Titled
    | ModeChanged
    | Prompted
    | Replied
    | Thought
    | Planned
    | ToolCalled
    | ToolStarted
    | ToolEnded
    | PermissionDecided
    | TurnEnded
    | ModelResponded
    | HistoryCompacted
    | MessageSent
    | MessageReceived
    | UnknownEvent
)

# The names are stored and exported, so a name never changes, even if its class does. A new meaning, such as a new
# outcome, needs a new kind: earlier versions show an event as unknown only if they do not know its kind.
KINDS: Mapping[str, type[Event]] = {
    "session_opened": SessionOpened,
    "session_closed": SessionClosed,
    "servers_resolved": ServersResolved,
    "trust_lowered": TrustLowered,
    "titled": Titled,
    "mode_changed": ModeChanged,
    "prompted": Prompted,
    "replied": Replied,
    "thought": Thought,
    "planned": Planned,
    "tool_called": ToolCalled,
    "tool_started": ToolStarted,
    "tool_ended": ToolEnded,
    "permission_decided": PermissionDecided,
    "turn_ended": TurnEnded,
    "model_responded": ModelResponded,
    "history_compacted": HistoryCompacted,
    "message_sent": MessageSent,
    "message_received": MessageReceived,
}
"""The kinds of events, by the name that is stored."""
_KIND_NAMES = {event_type: kind for kind, event_type in KINDS.items()}


def event_kind(event: Event) -> str:
    """The name of the event's kind."""
    return event.kind if isinstance(event, UnknownEvent) else _KIND_NAMES[type(event)]
