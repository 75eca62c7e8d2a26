"""The protocol that every agent implements (`Agent`), and what an agent can use during a turn (`TurnContext`)."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from holdfast.agent.model.budget import Budget
from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.call_arguments import Arguments
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import HistoryCompacted, ModelResponded, Origin, StopReason
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, SessionWarning
from holdfast.store.types import StoredEvent


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
    ended: tuple[str, ...] = ()
    """The available servers whose process or connection has ended. The next call starts them again, except those in `restart_errors`."""
    restart_errors: Mapping[str, str] = field(default_factory=dict[str, str])
    """By server that keeps failing and is not started again yet: the error that a call to it would get now."""
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[SessionWarning, ...] = ()
    awaiting_approval: Mapping[str, tuple[str, ...]]
    """The tools that await approval, by server."""
    without_hints: tuple[str, ...] = ()
    """The servers whose hints about their tools await approval. Until then, Holdfast asks even before tools that claim to be read-only."""


class TurnContext(Protocol):
    """What an agent can do during one turn. Everything that it does is stored first, then published."""

    @property
    def turn_id(self) -> str:
        """The id of the turn. The ids of the agent's messages begin with it."""
        ...

    @property
    def context(self) -> SessionContext:
        """The session's id, trust, workspace and folders."""
        ...

    def begin_message(self) -> None:
        """Begin a new message, which the following replies belong to. The first reply after a call begins one automatically."""
        ...

    @property
    def origin(self) -> Origin:
        """Which agent this is: the session's own, or a sub-agent that works for a call."""
        ...

    @property
    def sender(self) -> str:
        """The id of the session that started the turn with a message; empty if the user did with a prompt, and for a sub-agent.

        If there is a sender, the prompt is the text of another agent, not of the user.
        """
        ...

    @property
    def budget(self) -> Budget:
        """The budget, which the agents below one root session share. The agent must call `start_request` and `start_call` before each request and call: they raise if the budget is used up.

        The agent must call `add_usage` after each request, even a failed one.
        """
        ...

    @property
    def total(self) -> TurnTotal:
        """What this turn has used so far, with all of its sub-agents."""
        ...

    @property
    def definition(self) -> AgentDefinition | None:
        """The definition of the agent, with its instructions; None if it has none."""
        ...

    async def take_messages(self) -> tuple[str, ...]:
        """Return the messages of other sessions that have arrived since the last call, marked as text of another agent.

        The call also stores that they were delivered, so they are not delivered again. Call it between two requests to a model, and add
        the messages to the second request.
        """
        ...

    async def reply(self, text: str) -> None:
        """Send a piece of the reply."""
        ...

    async def think(self, text: str) -> None:
        """Send a piece of the agent's reasoning."""
        ...

    async def flush(self) -> None:
        """Wait until everything so far is stored and published. Raises if something could not be stored.

        Call it before a long computation: until the agent waits, nothing that it has sent is published.
        """
        ...

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        """Publish a plan, which replaces the previous one."""
        ...

    def report_usage(self, usage: JsonObject) -> None:
        """Report how full the model's context is: `used` and `size`, in tokens, and optionally the session's `cost` so far."""
        ...

    def report_failure(self, error: HoldfastError) -> None:
        """Report a failure without raising an error. `session.prompt` returns the code and the message.

        An error that the agent raises is reported by the session, which also shows its message as a reply.
        """
        ...

    async def reject_call(
        self, server: str, tool: str, arguments: Arguments, *, call_id: str, error: HoldfastError
    ) -> ToolResult:
        """Record a call that cannot be made, for example because the tool was not offered. Nothing is called."""
        ...

    async def call(self, name: str, arguments: Arguments | None = None, *, call_id: str = "") -> ToolResult:
        """Call a tool, after asking the user if a rule or the mode requires it. A refusal or a failure is a result, too.

        The arguments are a mapping, a dataclass or a pydantic model. `call_id` is the id of the call, from `new_call_id`; by
        default, the call gets a new id.
        """
        ...

    async def keep_setting(self, name: str, value: str) -> None:
        """Store a setting of the session. It still applies when the session is resumed."""
        ...

    async def project_instructions(self) -> str:
        """Return the text of the project's `AGENTS.md`, if the user approved its current content; empty otherwise."""
        ...

    async def add_model_event(self, event: ModelResponded | HistoryCompacted) -> None:
        """Store what a model needs to continue the conversation later. The user does not see it."""
        ...

    def past_events(self) -> AsyncIterator[StoredEvent]:
        """Return all events of the session that are stored so far, in order."""
        ...

    async def tools(self) -> tuple[CatalogTool, ...]:
        """Return the tools that are available now; `server_status` lists the servers that are still starting."""
        ...

    def describe_access(self, tool: CatalogTool) -> str:
        """Describe whether the tool may be called now, and which rule or mode decides that, such as `must ask: mode ask`."""
        ...

    async def read_log(self, server: str) -> str:
        """Return what one of the session's servers wrote to standard error.

        Raises if the session has no log of the server, for example because sessions share the server.
        """
        ...

    async def list_features(
        self, server: str, kind: Literal["resources", "resourceTemplates", "prompts"]
    ) -> list[JsonObject]:
        """Return the resources, the resource templates, or the prompts of a server."""
        ...

    async def request_feature(
        self, server: str, method: Literal["resources/read", "prompts/get"], params: Mapping[str, Any]
    ) -> JsonObject:
        """Read a resource, or get a prompt. Permissions and the audit treat this like a tool call."""
        ...

    def server_status(self) -> ServerStatus:
        """The state of the session's servers."""
        ...

    async def was_added_later(self, server: str) -> bool:
        """Return whether a server was added or approved after this session was opened, so that only a new session would get it."""
        ...


class Agent(Protocol):
    """Answers the prompts of a session. Subclass it, and implement `run_turn`."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """The slash commands that the agent understands. By default, none."""
        return ()

    @abstractmethod
    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        """Answer one prompt, given as ACP content blocks. If the user cancels the turn, this task is cancelled."""
        ...
