"""How a session reaches its user: through an editor (`holdfast acp`) or a terminal (`holdfast chat`)."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.model.event_text import FileChange
from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorCapabilities:
    """What a door supports."""

    permission: bool = False
    elicitation: bool = False
    sampling: bool = False
    read_files: bool = False
    write_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionQuestion:
    """A question whether a call may run."""

    call: ToolCall
    """The call, with the user's secrets masked in its arguments."""
    title: str
    """Names the tool, its server and where it runs: show all of it."""
    can_remember: bool
    """Whether to offer *always allow*. The answer to a question that an `ask` rule requires cannot be remembered."""
    change: FileChange | None = None
    """What the call would change in a file, if that is known. Show it instead of the arguments."""


class Door(Protocol):
    """An editor or a terminal, as seen by a session."""

    @property
    def capabilities(self) -> DoorCapabilities:
        """What this door supports. The session calls no other methods."""
        ...

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask the user whether a call may run."""
        ...

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user for input that a server needs. The params and the result are those of MCP."""
        ...

    async def sample(self, params: JsonObject) -> JsonObject:
        """Let the client's model answer a server. The params and the result are those of MCP."""
        ...

    async def read_text(self, path: str) -> str:
        """Read a file through the editor, including unsaved changes; raise NO_FILE if the editor does not have it."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Write a file through the editor."""
        ...
