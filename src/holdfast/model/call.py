"""A tool call."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.event import OWN_AGENT, Origin
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode


class Forwarding(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway passes on from the request of its client, besides the arguments. Holdfast itself does not use it."""

    params: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """Further members of the request's params, without `_meta`. The values are JSON that is not decoded."""
    capabilities: JsonObject | None = None
    """The capabilities of the client, if the request declares them."""
    is_permitted: bool = False
    """Whether the user has already permitted this call: it asked for input, and the client sends it again with that input."""

    def __repr__(self) -> str:
        return f"<Forwarding {', '.join(self.params)}>"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a server's tool. The arguments are the original JSON text."""

    call_id: str
    server: str
    tool: str
    arguments: bytes = b"{}"
    meta: JsonObject | None = None
    """The caller's `_meta`. The host's own entries replace entries with the same keys."""
    is_preview: bool = False
    """Whether a built-in file tool only returns the change that it would make, without making it."""
    origin: Origin = OWN_AGENT
    """Which agent makes the call."""
    max_mode: Mode = Mode.AUTO
    """The highest mode that the agent's definition allows for the call."""
    is_confirmed: bool = False
    """Whether a person or a rule allowed this call. False if only the mode allows it."""
    method: str = ""
    """The method of a request other than `tools/call`, such as `resources/read`. `arguments` are then its params."""
    forwarding: Forwarding | None = None
    """Set if the call comes from a client of the gateway. The result is then kept as the server sent it."""

    def __repr__(self) -> str:
        """Without arguments: they may contain secrets."""
        return f"<ToolCall {self.call_id} {self.server} {self.method or self.tool}>"
