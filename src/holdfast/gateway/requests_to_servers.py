"""Send the requests of one client to its servers, and convert what they answer for the client."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.gateway.capabilities import capabilities_for_servers
from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.convert_eras import convert_error, convert_result
from holdfast.gateway.offer import Offer
from holdfast.gateway.params import decode_text, read_members
from holdfast.model import codes
from holdfast.model.call import Forwarding, Grant, ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_call_id
from holdfast.wire.mcp.eras import Era
from holdfast.wire.messages import PeerError, Raw

_BOTH_MODERN = {"server": Era.MODERN, "client": Era.MODERN}
# Read once, because every request needs it: in Python 3.11, reading a member of an enum is slow.
_MODERN = Era.MODERN


class InputRequired:
    """A modern server's `input_required` result for a modern client, without its `requestState`."""

    def __init__(self, server: str, members: Mapping[str, Raw], state: str | None, grant: Grant) -> None:
        self.server = server
        self.grant = grant
        """The user's permission for the call, which applies when the client continues it."""
        self.members = members
        self.state = state
        """The server's `requestState`; None if it sent none."""


class RequestsToServers:
    """Sends requests to the servers of one session."""

    def __init__(self, client_session: ClientSession, offer: Offer) -> None:
        self._client_session = client_session
        self._offer = offer

    async def call_tool(
        self,
        tool: CatalogTool,
        arguments: bytes,
        more: Mapping[str, Any],
        call: ClientCall,
        *,
        grant: Grant,
    ) -> Any:
        """Call a tool. `more` contains the other members of the params.

        If the call continues after a server's question, `grant` is the user's permission for the call that was interrupted.
        """
        server = tool.server.name
        tool_call = ToolCall(
            call_id=new_call_id(),
            server="",
            tool=tool.name,
            arguments=arguments,
            meta=self._client_session.log_levels.meta_for(self._offer, server, call),
            forwarding=Forwarding(params=more, capabilities=self._capabilities(call), grant=grant),
        )
        return await self._perform_call(tool_call, server, "tools/call", call)

    async def perform(self, server: str, method: str, params: Mapping[str, Any], call: ClientCall) -> Any:
        """Send a request that is recorded like a call."""
        arguments = {
            key: value for key, value in params.items() if key not in ("requestState", "inputResponses")
        }
        more = {key: value for key, value in params.items() if key not in arguments}
        tool_call = ToolCall(
            call_id=new_call_id(),
            server=server,
            tool=f"{server}.{method}",
            arguments=msgspec.json.encode(arguments),
            meta=self._client_session.log_levels.meta_for(self._offer, server, call),
            method=method,
            forwarding=Forwarding(params=more, capabilities=self._capabilities(call)),
        )
        return await self._perform_call(tool_call, server, method, call)

    async def forward(self, server: str, method: str, params: Mapping[str, Any], call: ClientCall) -> Any:
        """Send a request that is not recorded."""
        call.server = server
        eras = self._eras(server)
        try:
            raw = await self._offer.session.forward(
                server,
                method,
                params,
                meta=call.meta,
                capabilities=self._capabilities(call),
                timeout=self._client_session.options.call_seconds,
                on_progress=_progress_listener(call),
            )
        except PeerError as error:
            raise convert_error(error, **eras) from None
        return convert_result(raw, method, **eras)

    async def _perform_call(self, tool_call: ToolCall, server: str, method: str, call: ClientCall) -> Any:
        """Perform a call for the client's request `call`. If the server needs a login, ask the user to log in, and try again."""
        session, options = self._offer.session, self._client_session.options
        call.server = server
        levels = self._client_session.log_levels
        if level := levels.wanted_by(call):
            await levels.send_to(self._offer, server, level)
        progress = _progress_listener(call) if call.meta else None
        result = await session.perform(tool_call, timeout=options.call_seconds, on_progress=progress)
        if result.code == codes.LOGIN_NEEDED.name and await self._client_session.logins.ask(
            session, server, call
        ):
            again = structs.replace(tool_call, call_id=new_call_id())
            result = await session.perform(again, timeout=options.call_seconds, on_progress=progress)
        grant = Grant() if tool_call.forwarding is None else tool_call.forwarding.grant
        return self._read_result(server, method, result, grant)

    def _read_result(self, server: str, method: str, result: ToolResult, grant: Grant) -> Any:
        """The server's answer as the client gets it."""
        raw, server_era, client_era = result.raw, self._offer.era_of(server), self._client_session.era
        if (
            raw is not None
            and server_era is client_era
            and method == "tools/call"
            and result.result.result_type == "complete"
            and bytes(raw).find(b'"task"') < 0
        ):
            return raw  # the usual case
        eras = {"server": server_era, "client": client_era}
        if result.error is not None:
            raise convert_error(result.error, **eras)
        if result.raw is None:
            # Holdfast's own answer: the call was refused, or the server failed.
            if method != "tools/call":
                raise HoldfastError(codes.find(result.code) or codes.PEER_ERROR, result.message)
            return {"content": result.result.content, "isError": True}
        if result.result.result_type == "task" or _is_task(result.raw):
            raise HoldfastError(
                codes.BAD_ANSWER, f"{server!r} answered with a task, but the gateway does not pass on tasks."
            )
        if result.result.result_type == "input_required" or method != "tools/call":
            input_required = _read_input_required(server, result.raw, grant)
            if input_required is not None and eras == _BOTH_MODERN:
                return input_required
        return convert_result(result.raw, method, **eras)

    def _eras(self, server: str) -> dict[str, Era]:
        return {"server": self._offer.era_of(server), "client": self._client_session.era}

    def _capabilities(self, call: ClientCall) -> Any:
        """The capabilities that a modern client sends with each request; None for a handshake-era client."""
        return (
            capabilities_for_servers(call.client_info.capabilities)
            if self._client_session.era is _MODERN
            else None
        )


def _is_task(raw: Raw) -> bool:
    """Whether a server answers with a task, although the gateway does not declare tasks."""
    return b'"task"' in bytes(raw) and read_members(raw).get("resultType") == Raw(b'"task"')


def _read_input_required(server: str, raw: Raw, grant: Grant) -> InputRequired | None:
    """The result, if it asks for input."""
    if b'"input_required"' not in bytes(raw):
        return None
    members = read_members(raw)
    if members.get("resultType") != Raw(b'"input_required"'):
        return None
    state = members.pop("requestState", None)
    server_state = None if state is None else decode_text(state, "requestState")
    return InputRequired(server, members, server_state, grant)


def _progress_listener(call: ClientCall) -> Any:
    if call.progress_token is None:
        return None

    def report(params: Mapping[str, Any]) -> None:
        call.notify("notifications/progress", {**params, "progressToken": call.progress_token})

    return report
