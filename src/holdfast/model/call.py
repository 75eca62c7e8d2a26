"""A tool call, and its result: `Ok` or `Failed`."""

from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.model.json import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call to a server's tool. The arguments are the original JSON text."""

    call_id: str
    server: str
    tool: str
    arguments: bytes = field(default=b"{}", repr=False)
    meta: JsonObject | None = field(default=None, repr=False)
    """The caller's `_meta`; the host's own entries override it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStats:
    """How long a call took, and which driven session it used. Every envelope has them in its `_meta`."""

    elapsed_ms: float = 0.0
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok:
    """The tool succeeded."""

    data: JsonObject = field(default_factory=dict[str, Json])
    stats: CallStats = CallStats()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The tool failed, with a registered code and a message for users."""

    code: str
    message: str
    next_actions: tuple[str, ...] = ()
    details: JsonObject = field(default_factory=dict[str, Json])
    stats: CallStats = CallStats()


Envelope: TypeAlias = Ok | Failed
