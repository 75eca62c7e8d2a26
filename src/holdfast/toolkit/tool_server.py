"""The MCP server of a toolbox: its tools, resources and prompts, for clients of both eras, on any transport."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.authentication import Authenticator
from holdfast.toolkit.call import LEVELS, SILENT, Call
from holdfast.toolkit.client_requests import NO_CALL_PARAMETER, NO_CLIENT, ClientRequests, DirectRequests
from holdfast.toolkit.dispatcher import Dispatcher
from holdfast.toolkit.driven_sessions import DrivenSessions
from holdfast.toolkit.envelope import ResultMembers
from holdfast.toolkit.features import Features
from holdfast.toolkit.listed_tool import to_wire
from holdfast.toolkit.make_call import make_call
from holdfast.toolkit.outcome import Failed
from holdfast.toolkit.round_trips import RoundTrips, Target, WaitingCalls, read_answers
from holdfast.toolkit.server_state import Lifespan
from holdfast.toolkit.subscriptions import Change, Subscriptions
from holdfast.toolkit.tool import Tool
from holdfast.wire.mcp.eras import Era, OwnInfo
from holdfast.wire.mcp.server import HttpCaller, McpRequest
from holdfast.wire.mcp.tools import CallParams, ParamHeader
from holdfast.wire.messages import EMPTY_OBJECT, Notification, PeerError, Raw, encode

if TYPE_CHECKING:
    from holdfast.toolkit.feature_server import FeatureServer

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
log = logging.getLogger(__name__)


class ToolServer:
    """Answers MCP requests. Every request is authenticated separately."""

    def __init__(
        self,
        info: OwnInfo,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        features: Features,
        lifespans: Sequence[Lifespan] = (),
        driven_sessions: Sequence[DrivenSessions[Any]] = (),
    ) -> None:
        self.info = info
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._features = features
        self._lifespans = lifespans
        self._driven_sessions = driven_sessions
        self._dispose_tasks: set[asyncio.Task[None]] = set()
        self._log_levels: dict[str, int] = {}
        self._tool_list: Raw | None = None
        self._waiting_calls = WaitingCalls()
        tools = info.capabilities.get("tools")
        self._is_dynamic = isinstance(tools, dict) and "listChanged" in tools
        self._subscriptions = Subscriptions(can_lists_change=self._is_dynamic)

    async def start(self) -> None:
        """Start the lifespans. Without this, each starts at the first call that needs it."""
        for lifespan in self._lifespans:
            await self._dispatcher.server_state.start(lifespan)

    def end_streams(self) -> None:
        """End the subscriptions of all clients. They would keep their connections open."""
        self._subscriptions.close()

    async def close(self) -> None:
        """Cancel the calls that wait for their clients, and close everything that calls have used."""
        self.end_streams()
        await self._waiting_calls.close()
        if self._dispose_tasks:
            await asyncio.wait(list(self._dispose_tasks))
        await self._dispatcher.server_state.close()

    def publish(self, change: Change) -> None:
        """Tell the clients that subscribed to a list or a resource that it has changed."""
        is_unlisted = change.list_name == "tools" and self._tool_list is None
        if change.list_name == "tools":
            self._tool_list = None
        if change.list_name is None or self._is_dynamic:
            self._subscriptions.publish(change)
        elif not is_unlisted:  # a tool that the lifespan adds is in the first list
            log.warning(
                "clients are not told of the change: use Toolbox(dynamic=True)",
                extra={"list": change.list_name},
            )

    async def answer(self, request: McpRequest) -> Any:
        """The result of one request; raises METHOD_NOT_FOUND for unknown methods."""
        match request.method:
            case "tools/call":
                return await self._call_tool(request, request.decode_params(CallParams))
            case "tools/list":
                caller = self._authenticator.authenticate(request, mutates=False)
                if self._is_dynamic:
                    session_id = caller.session.session_id if caller.session else ""
                    self._subscriptions.add_list(request, session_id, "tools")
                return self._list_tools(request)
            case "logging/setLevel" if request.client.era is Era.HANDSHAKE:
                self._authenticator.authenticate(request, mutates=True)
                self._log_levels[request.connection] = LEVELS.get(
                    request.decode_params(_SetLevelParams).level, SILENT
                )
                return EMPTY_OBJECT
            case _:
                return await self._feature_server.answer(request)

    @cached_property
    def _feature_server(self) -> "FeatureServer":
        """Imported and made at the first request that needs it: most servers have tools only."""
        from holdfast.toolkit.feature_server import FeatureServer

        return FeatureServer(
            self._features, self._dispatcher, self._authenticator, self._subscriptions, self._run
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
        """Forget an MCP session or, in process, a Holdfast session that has ended. Dispose of its driven sessions and kept values."""
        self._log_levels.pop(session_id, None)
        self._subscriptions.remove_connection(session_id)
        self._dispatcher.server_state.end_session(session_id)
        for driven in self._driven_sessions:
            if driven.has_owner(session_id):
                task = asyncio.ensure_future(driven.dispose_owned(session_id))
                self._dispose_tasks.add(task)
                task.add_done_callback(self._dispose_tasks.discard)

    async def _call_tool(self, request: McpRequest, params: CallParams) -> Any:
        tool = self._dispatcher.tools.get(params.name)
        caller = self._authenticator.authenticate(request, mutates=tool is None or tool.operation.mutates)
        if tool is not None and tool.definition.required_capabilities:
            _check_capabilities(tool.definition.required_capabilities, request.client.capabilities)
        may_ask = tool is not None and bool(request.client.capabilities) and tool.may_ask
        if tool is not None and (may_ask or params.request_state is not None):
            target = Target(caller, request.method, tool.name, params.arguments)
            return await self._run(request, tool, target, partial(self._dispatch, params.arguments))
        call = make_call(request, caller, params.name, _no_requests(request), level=self._log_level(request))
        return await self._dispatch(params.arguments, call)

    async def _dispatch(self, arguments: Raw, call: Call) -> ResultMembers:
        dispatched = await self._dispatcher.dispatch(call, arguments)
        envelope = dispatched.envelope
        if isinstance(envelope, Failed) and envelope.code == codes.UNKNOWN_TOOL.name:
            raise HoldfastError(codes.UNKNOWN_TOOL, envelope.message)  # MCP requires a protocol error here
        return dispatched.members

    async def _run(
        self,
        request: McpRequest,
        tool: Tool,
        target: Target,
        work: Callable[[Call], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run a call that may ask its client: with requests in the handshake era, with repeated calls in the modern era."""
        caller = target.caller
        client, level = request.client, self._log_level(request)
        may_ask = bool(client.capabilities) and tool.may_ask
        if client.era is Era.HANDSHAKE:
            client_requests = (
                DirectRequests(client.capabilities, request.back_channel.ask)
                if may_ask
                else _no_requests(request)
            )
            return await work(make_call(request, caller, tool.name, client_requests, level=level))
        answers, state = read_answers(request)
        if state:
            return await self._waiting_calls.resume(state, target, request, answers)
        if not may_ask:
            return await work(make_call(request, caller, tool.name, _no_requests(request), level=level))
        trips = RoundTrips(request, answers)
        call = make_call(request, caller, tool.name, trips, level=level)
        return await self._waiting_calls.run(target, trips, work(call))

    def _list_tools(self, request: McpRequest) -> Raw:
        if request.decode_params(_ListParams).cursor is not None:
            raise HoldfastError(codes.BAD_CURSOR, "All tools are on one page: list them without a cursor.")
        if self._tool_list is None:
            allow_eval = self._dispatcher.options.allow_eval
            tools = [
                to_wire(tool)
                for tool in self._dispatcher.tools.values()
                if allow_eval or not tool.definition.requires_eval_flag
            ]
            self._tool_list = Raw(encode({"tools": tools}))
        return self._tool_list

    def _log_level(self, request: McpRequest) -> int:
        """The lowest level of log messages that the client wants.

        In the handshake era a client that has not set it gets `info` and above: many clients never set it.
        """
        if request.client.era is Era.MODERN:
            wanted = request.meta.get(LOG_LEVEL_KEY)
            return LEVELS.get(wanted, SILENT) if isinstance(wanted, str) else SILENT
        return self._log_levels.get(request.connection, LEVELS["info"])


class _SetLevelParams(msgspec.Struct):
    level: str


class _ListParams(msgspec.Struct):
    cursor: str | None = None


def _no_requests(request: McpRequest) -> ClientRequests:
    """The requests of a call that cannot ask, because its client has no capabilities, or its handler does not get the call."""
    return NO_CALL_PARAMETER if request.client.capabilities else NO_CLIENT


def _check_capabilities(required: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    missing = {name: required[name] for name in required if name not in capabilities}
    if missing:
        raise PeerError(
            codes.MISSING_CAPABILITY.rpc_code,
            f"This tool needs a client with {', '.join(missing)}.",
            {"requiredCapabilities": missing},
        )
