"""The MCP side of a toolbox: lists its tools, calls them, and answers both eras on any transport."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.model import codes
from holdfast.model.carriers import META_KEY
from holdfast.model.envelope import Failed
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.believe import Belief
from holdfast.toolkit.call import LEVELS, SILENT, Call
from holdfast.toolkit.dispatcher import Dispatcher
from holdfast.toolkit.tool import Tool
from holdfast.wire.frame import EMPTY, Notification, Raw, encode
from holdfast.wire.mcp.eras import Era, Implementation, Introduction
from holdfast.wire.mcp.mirrors import Mirrors
from holdfast.wire.mcp.server import Ask
from holdfast.wire.mcp.tools import CallParams
from holdfast.wire.mcp.tools import Tool as WireTool
from holdfast.wire.peer import PeerError

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
_CAPABILITIES: dict[str, Any] = {"tools": {}, "logging": {}, "extensions": {META_KEY: {}}}


class Answers:
    """Stands behind a server of these tools. It holds no caller: each request brings its own."""

    def __init__(
        self, who: Implementation, instructions: str, dispatcher: Dispatcher, belief: Belief
    ) -> None:
        self.introduction = Introduction(who=who, capabilities=_CAPABILITIES, instructions=instructions)
        self._dispatcher = dispatcher
        self._belief = belief
        self._levels: dict[str, int] = {}
        self._listed: Raw | None = None

    async def answer(self, ask: Ask) -> Any:
        """The result of one request."""
        match ask.method:
            case "tools/call":
                return await self._call(ask, ask.read(CallParams))
            case "tools/list":
                self._belief.of(ask, mutates=False)
                return self._list(ask)
            case "logging/setLevel" if ask.caller.era is Era.HANDSHAKE:
                self._levels[_connection(ask)] = LEVELS.get(ask.read(_SetLevel).level, SILENT)
                return EMPTY
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {ask.method[:80]!r} here.")

    def hear(self, notification: Notification) -> None:
        """Nothing that clients tell of their own accord matters to tools."""

    def mirrors_of(self, tool: str) -> Mirrors:
        """The arguments of a tool that HTTP headers must repeat."""
        found = self._dispatcher.tools.get(tool)
        return found.mirrors if found else ()

    def owner_of(self, headers: Mapping[str, str]) -> str:
        """A session of MCP's carries no rights here: each request proves its own."""
        return ""

    def ended(self, session_id: str) -> None:
        """Forget what a client that is gone wished to hear."""
        self._levels.pop(session_id, None)

    async def _call(self, ask: Ask, params: CallParams) -> Raw:
        tool = self._dispatcher.tools.get(params.name)
        believed = self._belief.of(ask, mutates=tool is None or tool.operation.mutates)
        if tool is not None and tool.definition.needs:
            _check_needs(tool.definition.needs, ask.caller.capabilities)
        call = Call(
            tool=params.name,
            call_id=ask.id,
            session=believed.session,
            announced=believed.announced,
            client=ask.caller.who.name,
            connection=_connection(ask),
            meta=ask.meta,
            notify=ask.notify,
            level=self._level(ask),
        )
        outcome = await self._dispatcher.dispatch(call, params.arguments)
        if isinstance(outcome.envelope, Failed) and outcome.envelope.code == codes.UNKNOWN_TOOL.name:
            raise HoldfastError(
                codes.UNKNOWN_TOOL, outcome.envelope.message
            )  # MCP wants a protocol error here
        return outcome.result

    def _list(self, ask: Ask) -> Raw:
        if ask.read(_Page).cursor is not None:
            raise HoldfastError(
                codes.BAD_CURSOR, "All tools stand on one page; there is no cursor to go on from."
            )
        if self._listed is None:
            allowed = self._dispatcher.rules.allow_eval
            shown = [
                _shown(tool)
                for tool in self._dispatcher.tools.values()
                if allowed or not tool.definition.requires_eval_flag
            ]
            self._listed = Raw(encode({"tools": shown}))
        return self._listed

    def _level(self, ask: Ask) -> int:
        """From which level on this caller wants to be told: nobody is told unasked."""
        if ask.caller.era is Era.MODERN:
            wanted = ask.meta.get(LOG_LEVEL_KEY)
            return LEVELS.get(wanted, SILENT) if isinstance(wanted, str) else SILENT
        return self._levels.get(_connection(ask), SILENT)


class _SetLevel(msgspec.Struct):
    level: str


class _Page(msgspec.Struct):
    cursor: str | None = None


def _connection(ask: Ask) -> str:
    return ask.exchange.session_id if ask.exchange else ""


def _shown(tool: Tool) -> WireTool:
    """The tool as clients see it; what kind of operation it is stays here."""
    return WireTool(
        name=tool.name,
        title=tool.definition.title or None,
        description=tool.description,
        input_schema=Raw(encode(tool.schema)),
        annotations=Raw(encode(tool.annotations)),
        meta=UNSET if tool.definition.meta is None else Raw(encode(tool.definition.meta)),
    )


def _check_needs(needs: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    missing = {name: needs[name] for name in needs if name not in capabilities}
    if missing:
        raise PeerError(
            codes.MISSING_CAPABILITY.rpc,
            f"This tool needs a client with {', '.join(missing)}.",
            {"requiredCapabilities": missing},
        )
