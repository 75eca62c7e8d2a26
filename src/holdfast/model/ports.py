"""What a session may ask of the front door it was opened through."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """Which of its favours a door can do."""

    permits: bool = False
    elicits: bool = False
    samples: bool = False
    reads_files: bool = False
    writes_files: bool = False


class Door(Protocol):
    """An editor, a client or a terminal, as far as a session is concerned."""

    @property
    def powers(self) -> Powers:
        """What this door can do; the rest is never asked of it."""
        ...

    async def permit(self, call: ToolCall, title: str) -> Decision:
        """Ask the person whether this call may run."""
        ...

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the person what a server wants to know, in MCP's own words."""
        ...

    async def sample(self, params: JsonObject) -> JsonObject:
        """Let the client's model answer for a server, in MCP's own words."""
        ...

    async def read_text(self, path: str) -> str:
        """The text of a file as the editor has it, unsaved changes included; NO_FILE when it has none."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Write a file through the editor."""
        ...
