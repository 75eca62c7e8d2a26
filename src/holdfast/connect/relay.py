"""How a session's servers reach the MCP client that uses the session through the gateway."""

from typing import Protocol

from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.eras import Era
from holdfast.wire.messages import Notification, Raw


class Relay(Protocol):
    """Sends the messages of servers to one MCP client of the gateway."""

    @property
    def era(self) -> Era:
        """The client's era."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the client declared."""
        ...

    @property
    def is_limited_to_folder(self) -> bool:
        """Whether the client may use only one folder or workspace. If so, it may not name other folders as roots."""
        ...

    async def ask(self, server: ServerSpec, method: str, params: Raw) -> Raw:
        """Send a server's request to the client, and return the answer. Raise if the client cannot be asked."""
        ...

    def notify(self, server: ServerSpec, notification: Notification) -> None:
        """Send a server's notification to the client, without waiting."""
        ...
