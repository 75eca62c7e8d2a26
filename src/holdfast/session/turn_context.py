"""What an agent can do during one turn of a session."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from holdfast.agent.agent import ServerStatus
from holdfast.agent.model.budget import UNLIMITED_BUDGET, Budget
from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    MAIN_AGENT_ORIGIN,
    HistoryCompacted,
    ModelResponded,
    Origin,
    Planned,
    Replied,
    Thought,
)
from holdfast.model.ids import new_call_id
from holdfast.model.json import JsonObject
from holdfast.model.message_text import mark_message
from holdfast.model.parse_text import bad_type
from holdfast.model.permission import Mode
from holdfast.model.server import SPAWNING_TOOLS
from holdfast.model.visible_text import replace_surrogates
from holdfast.session.calls import Calls
from holdfast.session.mailbox import Mailbox
from holdfast.session.permission import PermissionPolicy
from holdfast.session.project_instructions import ProjectInstructions
from holdfast.session.record import Record
from holdfast.session.servers import Servers
from holdfast.store.types import StoredEvent
from holdfast.wire.call_arguments import Arguments, encode_arguments, tool_name_type_error

MAX_RESULT_TEXT = 1_000_000
"""How many characters of the agent's last message are kept for the result of its turn."""


class _Message:
    """A message of the agent, up to `MAX_RESULT_TEXT` characters."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.pieces: list[str] = []
        self._length = 0

    def add(self, text: str) -> None:
        piece = text[: MAX_RESULT_TEXT - self._length]
        if piece:
            self.pieces.append(piece)
            self._length += len(piece)


class SessionTurnContext:
    """One turn of a session, for its agent. The protocol `holdfast.agent.agent.TurnContext` describes the methods."""

    def __init__(
        self,
        turn_id: str,
        record: Record,
        servers: Servers,
        calls: Calls,
        permission: PermissionPolicy,
        instructions: ProjectInstructions | None = None,
    ) -> None:
        self.turn_id = turn_id
        self.origin: Origin = MAIN_AGENT_ORIGIN
        self.sender = ""
        """The id of the session whose message started the turn; empty if a prompt did."""
        self.budget: Budget = UNLIMITED_BUDGET
        self.total = TurnTotal()
        self.definition: AgentDefinition | None = None
        self.max_mode = Mode.AUTO
        """The highest mode for the calls of this agent."""
        self.can_spawn: Callable[[CatalogTool], bool] = _allow
        """Whether the agent may now start another agent with this tool."""
        self.mailbox: Mailbox | None = None
        """None if this agent gets no messages of other sessions."""
        self._record = record
        self._servers = servers
        self._calls = calls
        self._permission = permission
        self._instructions = instructions
        self._message_count = 0
        self._message_id = f"{turn_id}.0"
        self.usage: JsonObject = {}
        self.failure: HoldfastError | None = None
        """Why the turn failed, if it did."""
        self._last_message = _Message("")

    @property
    def context(self) -> SessionContext:
        return self._servers.context

    def begin_message(self) -> None:
        self._message_count += 1
        self._message_id = f"{self.turn_id}.{self._message_count}"

    @property
    def last_message(self) -> str:
        """The agent's last message, at most `MAX_RESULT_TEXT` characters; empty if there is none."""
        return "".join(self._last_message.pieces)

    async def reply(self, text: str) -> None:
        if text:
            if self._last_message.message_id != self._message_id:
                self._last_message = _Message(self._message_id)
            self._last_message.add(text)
            await self._record.messages.append_piece(
                Replied(message_id=self._message_id, text=replace_surrogates(text)), self.origin
            )

    async def think(self, text: str) -> None:
        if text:
            await self._record.messages.append_piece(
                Thought(message_id=self._message_id, text=replace_surrogates(text)), self.origin
            )

    async def flush(self) -> None:
        await self._record.flush()

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        await self._record.append(Planned(entries=tuple(entries)), origin=self.origin)

    def report_usage(self, usage: JsonObject) -> None:
        self.usage = usage

    def report_failure(self, error: HoldfastError) -> None:
        self.failure = error

    async def call(self, name: str, arguments: Arguments | None = None, *, call_id: str = "") -> ToolResult:
        if not isinstance(cast("object", name), str):
            raise tool_name_type_error(name)
        if not isinstance(cast("object", call_id), str):
            raise bad_type("call_id", "a string", call_id)
        # `server` stays empty, because `name` contains it.
        tool_call = ToolCall(
            call_id=call_id or new_call_id(),
            server="",
            tool=name,
            arguments=encode_arguments(arguments),
            origin=self.origin,
            max_mode=self.max_mode,
        )
        result = await self._calls.perform(tool_call)
        self.begin_message()
        return result

    async def reject_call(
        self, server: str, tool: str, arguments: Arguments, *, call_id: str, error: HoldfastError
    ) -> ToolResult:
        tool_call = ToolCall(
            call_id=call_id,
            server=server,
            tool=tool,
            arguments=encode_arguments(arguments),
            origin=self.origin,
        )
        result = await self._calls.reject(tool_call, error)
        self.begin_message()
        return result

    async def add_model_event(self, event: ModelResponded | HistoryCompacted) -> None:
        await self._record.append(event, origin=self.origin)

    async def keep_setting(self, name: str, value: str) -> None:
        await self._record.keep_setting(name, value)

    async def project_instructions(self) -> str:
        return "" if self._instructions is None else await self._instructions.text()

    def past_events(self) -> AsyncIterator[StoredEvent]:
        return self._record.stored_events()

    async def take_messages(self) -> tuple[str, ...]:
        if self.mailbox is None:
            return ()
        return tuple(map(mark_message, await self.mailbox.deliver(self.turn_id)))

    async def tools(self) -> tuple[CatalogTool, ...]:
        await self._servers.start_unknown()
        return tuple(tool for tool in self._servers.tools if not _starts_agent(tool) or self.can_spawn(tool))

    def describe_access(self, tool: CatalogTool) -> str:
        return self._permission.decide(tool).summary

    async def read_log(self, server: str) -> str:
        return await self._servers.read_log(server)

    async def list_features(
        self, server: str, kind: Literal["resources", "resourceTemplates", "prompts"]
    ) -> list[JsonObject]:
        method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
        return await self._calls.list_all(server, method, kind)

    async def request_feature(
        self, server: str, method: Literal["resources/read", "prompts/get"], params: Mapping[str, Any]
    ) -> JsonObject:
        return await self._calls.request(server, method, params)

    async def was_added_later(self, server: str) -> bool:
        return await self._servers.was_added_later(server)

    def server_status(self) -> ServerStatus:
        servers = self._servers
        return ServerStatus(
            available=servers.available,
            starting=servers.starting,
            ended=servers.ended,
            restart_errors=servers.restart_errors,
            refusals=tuple(
                replace(refusal, reason=self._record.mask.mask_all(refusal.reason))
                for refusal in servers.refusals
            ),
            warnings=servers.warnings,
            awaiting_approval={
                server: tuple(tool.name for tool in tools)
                for server, tools in servers.awaiting_approval.items()
            },
            without_hints=tuple(servers.offered_without_hints),
        )


def _starts_agent(tool: CatalogTool) -> bool:
    return (tool.server.name, tool.definition.name) in SPAWNING_TOOLS


def _allow(tool: CatalogTool) -> bool:
    return True
