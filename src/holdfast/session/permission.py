"""Whether a tool call may run: read-only tools may; for others, the session's mode decides."""

import asyncio
import re
from collections import defaultdict
from dataclasses import replace
from enum import StrEnum

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
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio
from holdfast.model.visible_text import to_line
from holdfast.session.record import Record

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MAX_NAME = 128
_MAX_TITLE = 80


class Mode(StrEnum):
    """What a session does with calls of tools that may change something."""

    ASK = "ask"
    """Asks the user before each call."""
    AUTO = "auto"
    """Makes the call without asking."""
    READ_ONLY = "read-only"
    """Refuses the call."""


class Access(StrEnum):
    """Whether a tool may be called in a mode."""

    ALLOWED = "allowed"
    MUST_ASK = "must ask"
    REFUSED = "refused"


class PermissionPolicy:
    """Decides whether a session's calls may run, and asks the user if the mode is `ask`."""

    def __init__(self, record: Record, door: Door | None) -> None:
        self.mode = Mode.ASK
        self._record = record
        self._door = door
        self._always_allowed: set[tuple[str, str]] = set()
        self._asking: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def change_mode(self, mode: Mode) -> None:
        """Use another mode from now on, and when the session is resumed."""
        await self._record.add_mode(mode)
        self.mode = mode

    async def check(self, tool_call: ToolCall, tool: CatalogTool) -> ToolResult | None:
        """Return None if the call may run, else a result that says why not."""
        if self._access(tool) is not Access.MUST_ASK:
            return self._mode_refusal(tool)
        if self._door is None or not self._door.capabilities.permission:
            return _refused_result(
                f"{tool.name} needs permission, and this session has no user to ask. "
                f"Allow all tools with --mode {Mode.AUTO}, or answer at a terminal or in an editor."
            )
        async with self._asking[_key(tool)]:  # the first answer may be for all calls of this tool
            try:
                if (
                    self._access(tool) is Access.MUST_ASK
                    and await self._ask(self._door, tool_call, tool) is Decision.REJECT
                ):
                    return _refused_result(f"{tool.name} was not permitted.")
            except HoldfastError as error:
                if error.code is not codes.TOO_LARGE:
                    raise
                return _refused_result(
                    f"{tool.name} needs permission, and its arguments are too long to be shown. Make them shorter."
                )
        return self._mode_refusal(tool)

    def _access(self, tool: CatalogTool) -> Access:
        """The access as of now. *Always allow* replaces asking; the mode `read-only` still refuses."""
        access = decide_access(tool, self.mode)
        if access is Access.MUST_ASK and _key(tool) in self._always_allowed:
            return Access.ALLOWED
        return access

    def _mode_refusal(self, tool: CatalogTool) -> ToolResult | None:
        if self._access(tool) is not Access.REFUSED:
            return None
        return _refused_result(
            f"{tool.name} may change something, and this session's mode is {self.mode}. "
            f"Change the mode to {Mode.ASK} or {Mode.AUTO} to allow it."
        )

    async def _ask(self, door: Door, tool_call: ToolCall, tool: CatalogTool) -> Decision:
        await self._record.wait_published()  # the user sees what the question is about
        decision = await door.request_permission(await self._shown_call(tool_call), permission_title(tool))
        await self._record.add_decision(tool_call, decision)
        if decision is Decision.ALLOW_ALWAYS:
            self._always_allowed.add(_key(tool))
        return decision

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


def decide_access(tool: CatalogTool, mode: Mode) -> Access:
    """Decide by the mode and the tool's read-only hint. Screening has removed the hints of definitions that are not approved."""
    if mode is Mode.AUTO or is_read_only(tool):
        return Access.ALLOWED
    return Access.MUST_ASK if mode is Mode.ASK else Access.REFUSED


def is_read_only(tool: CatalogTool) -> bool:
    """Whether the tool's definition says that it changes nothing, and does not say that it destroys something."""
    annotations = tool.definition.annotations
    if isinstance(annotations, UnsetType):
        return False
    try:
        hints = msgspec.json.decode(annotations, type=_Annotations)
    except msgspec.ValidationError:
        return False
    return hints.read_only_hint and not hints.destructive_hint


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
        else _quote_untrusted(tool.server.name, _MAX_NAME)
    )
    title = _quote_untrusted(tool.definition.title, _MAX_TITLE) if tool.definition.title else ""
    return f"{server}.{tool.definition.name}{after_name}{title and ' '}{title}"


def _quote_untrusted(text: str, limit: int) -> str:
    """Put untrusted text in quotation marks, on one line and shortened. It cannot contain the closing mark."""
    line = to_line(text).replace("“", "'").replace("”", "'").replace('"', "'")
    return f"“{line if len(line) <= limit else line[: limit - 1] + '…'}”"


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


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False
    destructive_hint: bool = False


class _Meta(msgspec.Struct):
    kind: str = msgspec.field(default="other", name="dev.holdfast/kind")


def _key(tool: CatalogTool) -> tuple[str, str]:
    return tool.server.name, tool.definition.name


def _refused_result(reason: str) -> ToolResult:
    return replace(failed_result(HoldfastError(codes.NOT_PERMITTED, reason)), outcome=Outcome.REFUSED)
