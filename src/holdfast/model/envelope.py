"""What came of a tool call: it went well, or it failed in a way with a name."""

from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.model.json import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What every envelope says about its call."""

    elapsed_ms: float = 0.0
    estimated_tokens: int = 0
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok:
    """The tool did what it was asked."""

    data: JsonObject = field(default_factory=dict[str, Json])
    meta: Meta = Meta()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The tool did not: a registered code, a sentence for people, and what to do next."""

    code: str
    message: str
    next_actions: tuple[str, ...] = ()
    details: JsonObject = field(default_factory=dict[str, Json])
    meta: Meta = Meta()


Envelope: TypeAlias = Ok | Failed
