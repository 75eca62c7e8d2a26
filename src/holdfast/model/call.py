"""A tool call."""

from dataclasses import dataclass, field
from typing import Final

from holdfast.model.json import JsonObject

ENVELOPE_KEY: Final = "dev.holdfast/envelope"
"""The key of an envelope in the `_meta` of a result, for servers that do not put it into the content."""


PREVIEW_KEY: Final = "dev.holdfast/preview"
"""The key in the `_meta` of a call that asks a built-in file tool for the change that it would make, without making it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call to a server's tool. The arguments are the original JSON text."""

    call_id: str
    server: str
    tool: str
    arguments: bytes = field(default=b"{}", repr=False)
    meta: JsonObject | None = field(default=None, repr=False)
    """The caller's `_meta`; the host's own entries override it."""
    is_preview: bool = False
    """Whether a built-in file tool only tells what it would change, and changes nothing."""
    method: str = ""
    """If it is another request than `tools/call`, such as `resources/read`: its method. `arguments` are its params."""
