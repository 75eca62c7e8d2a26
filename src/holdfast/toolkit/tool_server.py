"""The MCP server of a toolbox: lists its tools and calls them, for clients of both eras, on any transport."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.model import codes
from holdfast.model.call import Failed
from holdfast.model.context import META_KEY
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.authentication import Authenticator
from holdfast.toolkit.call import LEVELS, SILENT, Call
from holdfast.toolkit.dispatcher import Dispatcher
from holdfast.toolkit.driven_sessions import SessionManager
from holdfast.toolkit.tool import Tool
from holdfast.wire.frame import EMPTY_OBJECT, Notification, PeerError, Raw, encode
from holdfast.wire.mcp.eras import Era, Implementation, PeerInfo
from holdfast.wire.mcp.server import HttpCaller, McpRequest
from holdfast.wire.mcp.tools import CallParams, ParamHeader
from holdfast.wire.mcp.tools import Tool as WireTool

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
_CAPABILITIES: dict[str, Any] = {"tools": {}, "logging": {}, "extensions": {META_KEY: {}}}


class ToolServer:
    """Answers MCP requests. Every request is authenticated separately."""

    def __init__(
        self,
        implementation: Implementation,
        instructions: str,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        session_managers: Sequence[SessionManager[Any]] = (),
    ) -> None:
        self.info = PeerInfo(
            implementation=implementation, capabilities=_CAPABILITIES, instructions=instructions
        )
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._session_managers = session_managers
        self._dispose_tasks: set[asyncio.Task[None]] = set()
        self._log_levels: dict[str, int] = {}
        self._tool_list: Raw | None = None

    async def answer(self, request: McpRequest) -> Any:
        """The result of one request; raises METHOD_NOT_FOUND for methods that are not about tools or logging."""
        match request.method:
            case "tools/call":
                return await self._call_tool(request, request.decode_params(CallParams))
            case "tools/list":
                self._authenticator.authenticate(request, mutates=False)
                return self._list_tools(request)
            case "logging/setLevel" if request.client.era is Era.HANDSHAKE:
                self._authenticator.authenticate(request, mutates=True)
                self._log_levels[request.connection] = LEVELS.get(
                    request.decode_params(_SetLevelParams).level, SILENT
                )
                return EMPTY_OBJECT
            case _:
                raise HoldfastError(
                    codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r} here."
                )

    def on_notification(self, notification: Notification) -> None:
        """Ignore notifications: none is about tools."""

    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that HTTP clients repeat in headers."""
        found = self._dispatcher.tools.get(tool)
        return found.param_headers if found else ()

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        """Find out from the head of an HTTP request who sends it; raises if that caller is refused."""
        return self._authenticator.identify(headers, query)

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        """Raise unless the token of an HTTP caller is for this body and was not used before."""
        self._authenticator.authorize(caller, body)

    def on_session_end(self, session_id: str) -> None:
        """Forget the log level of an MCP session that has ended, and dispose of its driven sessions."""
        self._log_levels.pop(session_id, None)
        for manager in self._session_managers:
            if manager.has_owner(session_id):
                task = asyncio.ensure_future(manager.dispose_owned(session_id))
                self._dispose_tasks.add(task)
                task.add_done_callback(self._dispose_tasks.discard)

    async def _call_tool(self, request: McpRequest, params: CallParams) -> Raw:
        tool = self._dispatcher.tools.get(params.name)
        caller = self._authenticator.authenticate(request, mutates=tool is None or tool.operation.mutates)
        if tool is not None and tool.definition.required_capabilities:
            _check_capabilities(tool.definition.required_capabilities, request.client.capabilities)
        call = Call(
            tool=params.name,
            call_id=request.id,
            session=caller.session,
            announced_workspace=caller.announced_workspace,
            client=request.client.implementation.name,
            mcp_session_id=request.http.session_id if request.http else "",
            connection=caller.connection,
            meta=request.meta,
            notify=request.notify,
            level=self._log_level(request),
        )
        dispatched = await self._dispatcher.dispatch(call, params.arguments)
        envelope = dispatched.envelope
        if isinstance(envelope, Failed) and envelope.code == codes.UNKNOWN_TOOL.name:
            raise HoldfastError(codes.UNKNOWN_TOOL, envelope.message)  # MCP requires a protocol error here
        return dispatched.result

    def _list_tools(self, request: McpRequest) -> Raw:
        if request.decode_params(_ListParams).cursor is not None:
            raise HoldfastError(codes.BAD_CURSOR, "All tools are on one page: list them without a cursor.")
        if self._tool_list is None:
            allow_eval = self._dispatcher.options.allow_eval
            tools = [
                _to_wire(tool)
                for tool in self._dispatcher.tools.values()
                if allow_eval or not tool.definition.requires_eval_flag
            ]
            self._tool_list = Raw(encode({"tools": tools}))
        return self._tool_list

    def _log_level(self, request: McpRequest) -> int:
        """The lowest level of log messages that the client wants; by default it gets none."""
        if request.client.era is Era.MODERN:
            wanted = request.meta.get(LOG_LEVEL_KEY)
            return LEVELS.get(wanted, SILENT) if isinstance(wanted, str) else SILENT
        return self._log_levels.get(request.connection, SILENT)


class _SetLevelParams(msgspec.Struct):
    level: str


class _ListParams(msgspec.Struct):
    cursor: str | None = None


def _to_wire(tool: Tool) -> WireTool:
    """The tool as clients see it. The operation type is left out."""
    return WireTool(
        name=tool.name,
        title=tool.definition.title or None,
        description=tool.description,
        input_schema=Raw(encode(tool.schema)),
        annotations=Raw(encode(tool.annotations)),
        meta=UNSET if tool.definition.meta is None else Raw(encode(tool.definition.meta)),
    )


def _check_capabilities(required: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    missing = {name: required[name] for name in required if name not in capabilities}
    if missing:
        raise PeerError(
            codes.MISSING_CAPABILITY.rpc_code,
            f"This tool needs a client with {', '.join(missing)}.",
            {"requiredCapabilities": missing},
        )
