"""What was asked of a tool."""

from dataclasses import dataclass, field

from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call: which tool of which server, with its arguments as the JSON text they came in."""

    call_id: str
    server: str
    tool: str
    arguments: bytes = field(default=b"{}", repr=False)
    meta: JsonObject | None = field(default=None, repr=False)
    """What whoever called put into `_meta`; the host's own entries go over it."""
