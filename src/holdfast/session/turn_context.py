"""What an agent can do during one turn of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.agent.agent import ServerStatus
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model.call import ToolCall
from holdfast.model.event import Planned, Replied, Thought
from holdfast.model.ids import new_call_id, new_message_id
from holdfast.model.json import JsonObject
from holdfast.session.calls import Calls, encode_arguments
from holdfast.session.permission import PermissionPolicy
from holdfast.session.record import Record
from holdfast.session.servers import Servers


class SessionTurnContext:
    """The `TurnContext` of one turn of a session."""

    def __init__(self, record: Record, servers: Servers, calls: Calls, permission: PermissionPolicy) -> None:
        self._record = record
        self._servers = servers
        self._calls = calls
        self._permission = permission
        self._message_id = new_message_id()
        self.usage: JsonObject = {}

    async def reply(self, text: str) -> None:
        if text:
            await self._record.append_piece(Replied(message_id=self._message_id, text=_valid_text(text)))

    async def think(self, text: str) -> None:
        if text:
            await self._record.append_piece(Thought(message_id=self._message_id, text=_valid_text(text)))

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        await self._record.append(Planned(entries=tuple(entries)))

    def report_usage(self, usage: JsonObject) -> None:
        self.usage = usage

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        # The server stays empty: the name contains it.
        tool_call = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=encode_arguments(arguments)
        )
        result = await self._calls.perform(tool_call)
        self._message_id = new_message_id()  # a reply after a call is a new message
        return result

    async def tools(self) -> tuple[CatalogTool, ...]:
        return self._servers.tools

    def describe_access(self, tool: CatalogTool) -> str:
        return self._permission.decide(tool).summary

    def server_status(self) -> ServerStatus:
        servers = self._servers
        return ServerStatus(
            available=servers.available,
            starting=servers.starting,
            refusals=tuple(
                replace(refusal, reason=self._record.mask.mask_all(refusal.reason))
                for refusal in servers.refusals
            ),
            warnings=servers.warnings,
            awaiting_approval={
                server: tuple(tool.name for tool in tools)
                for server, tools in servers.awaiting_approval.items()
            },
        )


def _valid_text(text: str) -> str:
    """The text with lone surrogates replaced: a model may cut a character in half."""
    return text if text.isascii() else text.encode(errors="replace").decode()
