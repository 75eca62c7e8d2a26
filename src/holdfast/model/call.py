"""What was asked of a tool."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call: which tool of which server, with its arguments as the JSON text they came in."""

    call_id: str
    server: str
    tool: str
    arguments: bytes = field(default=b"{}", repr=False)
