"""The agent protocol, and what an agent can use during a turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, SessionWarning


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command: its name, its description, and a hint about its argument."""

    name: str
    """Without the slash."""
    description: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The state of the session's servers."""

    available: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[SessionWarning, ...] = ()
    awaiting_approval: Mapping[str, tuple[str, ...]]
    """The tools that await approval, by server."""


class TurnContext(Protocol):
    """What an agent can do during one turn. Everything that it does is stored first, then published."""

    async def reply(self, text: str) -> None:
        """Send a piece of the reply."""
        ...

    async def think(self, text: str) -> None:
        """Send a piece of the agent's reasoning."""
        ...

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        """Publish a plan, which replaces the previous one."""
        ...

    def report_usage(self, usage: JsonObject) -> None:
        """Report how full the model's context is: `used` and `size`, in tokens, and optionally the session's `cost` so far."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool, after asking the user if a rule or the mode requires it. A refusal or a failure is a result, too."""
        ...

    async def tools(self) -> tuple[CatalogTool, ...]:
        """The tools that are available now; `server_status` lists the servers that are still starting."""
        ...

    def describe_access(self, tool: CatalogTool) -> str:
        """Whether the tool may be called now, and which rule or mode decides: `must ask: mode ask`."""
        ...

    def server_status(self) -> ServerStatus:
        """The state of the session's servers."""
        ...


class Agent(Protocol):
    """Answers the prompts of a session. Subclass it, and implement `run_turn`."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """The slash commands that the agent understands. By default, none."""
        return ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        """Answer one prompt, given as ACP content blocks. If the user cancels the turn, this task is cancelled."""
        ...
