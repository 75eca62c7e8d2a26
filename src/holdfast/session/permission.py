"""Asks the user whether a call may run, where the permission rules and the session's mode require it."""

import asyncio
import re
from collections import defaultdict
from dataclasses import replace

import msgspec
from msgspec import UnsetType

from holdfast.connect.call import ToolResult, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Outcome
from holdfast.model.json import JsonObject
from holdfast.model.permission import Access, DoorKind, Mode
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio
from holdfast.model.visible_text import quote_line
from holdfast.session.permission_rules import (
    NO_RULES,
    AccessDecision,
    PermissionRules,
    ToolKey,
    check_mode,
    decide,
    is_read_only,
    tool_key,
)
from holdfast.session.record import Record

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MAX_NAME = 128
_MAX_TITLE = 80


class PermissionPolicy:
    """Decides whether a session's calls may run, and asks the user if the rules or the mode require it."""

    def __init__(
        self, record: Record, door: Door, rules: PermissionRules = NO_RULES, *, mode: Mode = Mode.ASK
    ) -> None:
        self.mode = mode
        self._record = record
        self._door = door
        self.rules = rules
        self._always_allowed: set[ToolKey] = set()
        self._decided: dict[str, tuple[CatalogTool, Mode, PermissionRules, AccessDecision]] = {}
        """The decision about each tool, and what it was made from."""
        self._asking: defaultdict[ToolKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def change_mode(self, mode: Mode, door: DoorKind | None = None) -> None:
        """Use another mode from now on, and when the session is resumed. Raises an error if `door` may not choose it."""
        if door is not None:
            check_mode(mode, door, self.rules)
        await self._record.add_mode(mode)
        self.mode = mode

    def decide(self, tool: CatalogTool) -> AccessDecision:
        """Whether the tool may be called now, and why."""
        known = self._decided.get(tool.name)
        if known is not None and known[0] is tool and known[1] is self.mode and known[2] is self.rules:
            return known[3]
        decision = decide(tool, self.mode, self.rules, self._always_allowed)
        self._decided[tool.name] = (tool, self.mode, self.rules, decision)
        return decision

    async def check(self, tool_call: ToolCall, tool: CatalogTool) -> ToolResult | None:
        """Return None if the call may run, else a result that says why not."""
        decision = self.decide(tool)
        if decision.access is not Access.MUST_ASK:
            return _refusal(decision)
        async with self._asking[tool_key(tool)]:  # the first answer may be for all calls of this tool
            try:
                decision = self.decide(tool)
                if (
                    decision.access is Access.MUST_ASK
                    and await self._ask(tool_call, tool, decision) is Decision.REJECT
                ):
                    return _refused_result(f"{tool.name} was not permitted.")
            except HoldfastError as error:
                if error.code is codes.NO_ANSWER:
                    return _refused_result(_no_answer(tool, decision, error.message))
                if error.code is not codes.TOO_LARGE:
                    raise
                return _refused_result(
                    f"{tool.name} needs permission, and its arguments are too long to be shown. Make them shorter."
                )
        return _refusal(self.decide(tool))  # the mode may have changed

    async def _ask(self, tool_call: ToolCall, tool: CatalogTool, decision: AccessDecision) -> Decision:
        await self._record.flush()  # the user sees what the question is about
        answer = await self._door.request_permission(
            await self._shown_call(tool_call), permission_title(tool), can_remember=decision.can_remember
        )
        if answer is Decision.ALLOW_ALWAYS and not decision.can_remember:
            answer = Decision.ALLOW_ONCE
        await self._record.add_decision(tool_call, answer)
        if answer is Decision.ALLOW_ALWAYS:
            self._always_allowed.add(tool_key(tool))
            self._decided.clear()
        return answer

    async def _shown_call(self, tool_call: ToolCall) -> ToolCall:
        """The call with its arguments as they will be sent, but for the user's secrets.

        Nothing is masked because of its name: the server chooses the names of its parameters.
        """
        return replace(tool_call, arguments=await self._record.mask_for_question(tool_call.arguments))


def stored_mode(settings: JsonObject) -> Mode:
    """The mode in a stored session's settings; `ask` if there is none."""
    try:
        return Mode(str(settings.get("mode", Mode.ASK)))
    except ValueError:
        return Mode.ASK


def permission_title(tool: CatalogTool) -> str:
    """What a permission question is about: which tool of which server, where it runs, and the server's own title."""
    return tool_label(tool, f" ({_where_it_runs(tool.server)})")


def tool_label(tool: CatalogTool, after_name: str = "") -> str:
    """`server.tool`, then in quotation marks the server's own title for it, if there is one.

    A server's name that contains other characters than letters, digits, _ and - is quoted, so that it cannot
    pose as the name of another server's tool.
    """
    server = (
        tool.server.name
        if _PLAIN_NAME.fullmatch(tool.server.name)
        else quote_line(tool.server.name, _MAX_NAME)
    )
    title = quote_line(tool.definition.title, _MAX_TITLE) if tool.definition.title else ""
    return f"{server}.{tool.definition.name}{after_name}{title and ' '}{title}"


def _where_it_runs(server: ServerSpec) -> str:
    match server.transport:
        case InProcess():
            return "built in"
        case Http() | Sse():
            return "remote server"
        case Stdio():
            return (
                "confined server"
                if server.confinement is not None
                else "server with your rights, not confined"
            )


def tool_kind(tool: CatalogTool) -> str:
    """The tool's kind in ACP's terms. Built-in tools declare theirs; others are `read` or `other`."""
    meta = tool.definition.meta
    if not isinstance(meta, UnsetType) and tool.server.source is Source.BUILTIN:
        try:
            return msgspec.json.decode(meta, type=_Meta).kind
        except msgspec.ValidationError:
            return "other"
    return "read" if is_read_only(tool) else "other"


class _Meta(msgspec.Struct):
    kind: str = msgspec.field(default="other", name="dev.holdfast/kind")


def _refusal(decision: AccessDecision) -> ToolResult | None:
    return _refused_result(decision.reason) if decision.access is Access.REFUSED else None


def _no_answer(tool: CatalogTool, decision: AccessDecision, why: str) -> str:
    needed = f"{tool.name} needs permission. {why}"
    if decision.rule is not None:  # it holds in every mode
        return f"{needed} {decision.reason} Answer at a terminal or in an editor."
    return f"{needed} Allow all tools with the mode {Mode.AUTO}, or answer at a terminal or in an editor."


def _refused_result(reason: str) -> ToolResult:
    return replace(failed_result(HoldfastError(codes.NOT_PERMITTED, reason)), outcome=Outcome.REFUSED)
