"""What a session can request from the door it was opened through: an editor, a client or a terminal."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorCapabilities:
    """What a door supports."""

    permission: bool = False
    elicitation: bool = False
    sampling: bool = False
    read_files: bool = False
    write_files: bool = False


class Door(Protocol):
    """An editor, a client or a terminal, as seen by a session."""

    @property
    def capabilities(self) -> DoorCapabilities:
        """What this door supports; nothing else is requested from it."""
        ...

    async def request_permission(self, call: ToolCall, title: str) -> Decision:
        """Ask the user whether this call may run."""
        ...

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user for input that a server needs, with MCP's params and result."""
        ...

    async def sample(self, params: JsonObject) -> JsonObject:
        """Let the client's model answer a server, with MCP's params and result."""
        ...

    async def read_text(self, path: str) -> str:
        """Read a file through the editor, including unsaved changes; raise NO_FILE if the editor does not have it."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Write a file through the editor."""
        ...
