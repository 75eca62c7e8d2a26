"""A tool call."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.event import MAIN_AGENT_ORIGIN, Origin
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode


class Grant:
    """The user's permission for a call whose server asks for input. It stays valid when the client continues the call with that input.

    The session sets `basis` when the user allows the call, and asks again if the basis is another one when the call is continued.
    """

    __slots__ = ("basis",)

    def __init__(self) -> None:
        self.basis: object = None
        """The tool, mode and rules under which the user allowed the call; None if the user was not asked."""


# Structs, because each call creates two or three: a frozen dataclass takes several times as long.
class Forwarding(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway passes on from the request of its client, besides the arguments."""

    params: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """Further members of the request's params, without `_meta`. The values are JSON that is not decoded."""
    capabilities: JsonObject | None = None
    """The capabilities of the client, if the request declares them."""
    grant: Grant = msgspec.field(default_factory=Grant)
    """The user's permission. If the call continues after its server asked for input, it is that of the call that was interrupted."""

    def __repr__(self) -> str:
        """Without the params: they may be secret."""
        return f"<Forwarding {'not permitted' if self.grant.basis is None else 'permitted'}>"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a server's tool. The arguments are the original JSON text."""

    call_id: str
    server: str
    """The name of the server. It may be empty until the session has found the tool."""
    tool: str
    """The full name, `server.tool`. After the session has found the tool: the name that the server gave it."""
    arguments: bytes = b"{}"
    meta: JsonObject | None = None
    """The caller's `_meta`. The host's own entries replace entries with the same keys."""
    is_preview: bool = False
    """Whether a built-in file tool only returns the change that it would make, without making it."""
    origin: Origin = MAIN_AGENT_ORIGIN
    """Which agent makes the call."""
    max_mode: Mode = Mode.AUTO
    """The highest mode that the agent's definition allows for the call."""
    is_confirmed: bool = False
    """Whether a person or a rule allowed this call. False if only the mode allows it, and always in the mode `auto`."""
    method: str = ""
    """The method of a request other than `tools/call`, such as `resources/read`. `arguments` are then its params."""
    forwarding: Forwarding | None = None
    """Set if the call comes from a client of the gateway. The result is then kept as the server sent it."""

    def __repr__(self) -> str:
        """Without the arguments and everything else that the caller sent: it may be secret."""
        return f"<ToolCall {self.call_id} {self.server} {self.tool}>"
