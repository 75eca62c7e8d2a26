"""What happened in a session: the durable words that every view is made from."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

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
    """What a person answered when asked for permission."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """The session was opened, or opened again after it was closed."""

    cwd: str
    roots: tuple[str, ...]
    trust_level: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The session's servers were closed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersResolved:
    """Which servers stand for the session, and who fell."""

    servers: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustLowered:
    """The session may do less from here on."""

    trust_level: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Titled:
    """The session got a title."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged:
    """Permission is asked differently from here on."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """The user spoke: a turn begins. The blocks are kept as they came."""

    turn_id: str
    message_id: str
    blocks: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The agent said a piece of a message."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The agent thought aloud."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The agent's plan, whole, as it stands now."""

    entries: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """The agent asked for a tool."""

    call_id: str
    server: str
    tool: str
    arguments: JsonObject
    title: str = ""
    kind: str = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The call was let through and runs."""

    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """The call is over: what came of it, as the agent and the editor see it."""

    call_id: str
    outcome: Outcome
    content: tuple[JsonObject, ...] = ()
    structured: Json = None
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDecided:
    """A person let a call through, or did not."""

    call_id: str
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over."""

    turn_id: str
    reason: StopReason
    usage: JsonObject = field(default_factory=dict[str, Json])


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
)
