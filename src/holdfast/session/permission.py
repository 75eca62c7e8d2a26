"""Decides whether a session's calls may run, and asks the user if necessary."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UnsetType, structs

from holdfast.connect.call import ToolResult, failed_result
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Outcome
from holdfast.model.event_text import FileChange, read_change
from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import Access, DoorKind, Mode, lowest_mode
from holdfast.model.server import FILES_SERVER, SHELL_SERVER, Source
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.session.doors import Doors
from holdfast.session.permission_rules import (
    NO_RULES,
    AccessDecision,
    PermissionRules,
    Step,
    ToolKey,
    check_mode,
    decide,
    is_read_only,
    tool_key,
)
from holdfast.session.question_title import question_title
from holdfast.session.record import Record

_APPLICATION_MODE = "program_mode"
"""The setting of a stored session in which the mode `auto` of an application is stored."""
# Read once, because reading an enum member is slow in Python 3.11.
_AUTO = Mode.AUTO
_MUST_ASK = Access.MUST_ASK
_ACCESS_REFUSED = Access.REFUSED
_BY_MODE = Step.MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The answer to whether a call may run."""

    refusal: ToolResult | None = None
    """The result of a call that may not run; None if it may."""
    is_confirmed: bool = False
    """Whether a person or a rule allowed the call, not only the mode. Always False in the mode `auto`."""
    was_asked: bool = False
    """Whether a person was asked now."""


_ALLOWED, _CONFIRMED = Permission(), Permission(is_confirmed=True)


class PermissionPolicy:
    """Decides whether the calls of one session may run: by its rules, its mode, and the user's answers."""

    def __init__(
        self,
        record: Record,
        doors: Doors,
        rules: PermissionRules = NO_RULES,
        *,
        mode: Mode = Mode.ASK,
        parent: "PermissionPolicy | None" = None,
    ) -> None:
        """`parent` is the policy of the parent session, if there is one."""
        self._mode = mode
        self._parent = parent
        self._record = record
        self._doors = doors
        self.rules = rules
        self.how_to_answer = ""
        """What a person can do if no attached door can answer, as a sentence. If empty, a default is used."""
        self.how_to_stop_asking = ""
        """How a person can choose the mode `auto`, as a sentence."""
        self.how_to_choose_mode = ""
        """Where an application chooses the mode, as a sentence for a call that the mode refuses."""
        self._always_allowed: set[ToolKey] = set()
        self._decided: dict[str, tuple[CatalogTool, Mode, PermissionRules, AccessDecision]] = {}
        """The last decision for each name of a tool, with the tool, mode and rules that it was based on."""
        self._question_locks: defaultdict[ToolKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def mode(self) -> Mode:
        """The mode. It is never higher than that of the parent session."""
        return self._mode if self._parent is None else lowest_mode(self._mode, self._parent.mode)

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode

    async def change_mode(self, mode: Mode, door: DoorKind | None = None) -> None:
        """Change the mode, and store it for when the session is resumed. Raise NOT_PERMITTED if it may not be chosen."""
        if door is not None:
            check_mode(mode, door, self.rules)
            if lowest_mode(mode, self.mode) is not mode:
                for other in sorted(self._doors.kinds - {door}):
                    check_mode(mode, other, self.rules, "while {} has the session open")
        if self._parent is not None and lowest_mode(mode, self._parent.mode) is not mode:
            raise HoldfastError(
                codes.NOT_PERMITTED,
                f"The mode {mode} is not allowed here: the mode of the session that this one was started in is "
                f"{self._parent.mode}.",
                hint=f"Use the mode {self._parent.mode}, or change the mode of that session first.",
            )
        await self._record.add_mode(mode)
        self.mode = mode

    def decide(self, tool: CatalogTool, tool_call: ToolCall | None = None) -> AccessDecision:
        """Whether the tool may be called now, and why. With `tool_call`, its `max_mode` and remembered answers about its arguments also count."""
        mode = self._mode if self._parent is None else self.mode
        if tool_call is not None and (_is_shell(tool) or tool_call.max_mode is not _AUTO):
            key, mode = remembered_key(tool, tool_call), lowest_mode(mode, tool_call.max_mode)
            return decide(tool, mode, self.rules, self._always_allowed, key)
        known = self._decided.get(tool.name)
        if known is not None and known[0] is tool and known[1] is mode and known[2] is self.rules:
            return known[3]
        decision = decide(tool, mode, self.rules, self._always_allowed)
        self._decided[tool.name] = (tool, mode, self.rules, decision)
        return decision

    def basis(self, tool: CatalogTool) -> tuple[CatalogTool, Mode, PermissionRules]:
        """What a user's answer about the tool is based on. If it is another one later, the user must be asked again."""
        return tool, self.mode, self.rules

    def decide_without_asking(self, tool_call: ToolCall, tool: CatalogTool) -> Permission | None:
        """Whether the call may run; None if the user must be asked."""
        decision = self.decide(tool, tool_call)
        return None if decision.access is _MUST_ASK else self._permission(decision, was_asked=False)

    async def decide_or_ask(
        self, tool_call: ToolCall, tool: CatalogTool, preview: Callable[[], Awaitable[ToolResult]]
    ) -> Permission:
        """Decide whether the call may run, and ask the user if neither a rule, the mode nor an earlier answer decides.

        `preview` returns the change that a call of a built-in file tool would make, or its failure.
        """
        decision, was_asked = self.decide(tool, tool_call), False
        if decision.access is not Access.MUST_ASK:
            return self._permission(decision, was_asked=False)
        # One question at a time about the same tool: the answer may be *always*.
        async with self._question_locks[remembered_key(tool, tool_call)]:
            try:
                decision = self.decide(tool, tool_call)
                if decision.access is Access.MUST_ASK:
                    change: FileChange | None = None
                    if _can_preview(tool):
                        result = await preview()
                        if not result.ok:  # do not ask about a call that would fail
                            return Permission(refusal=structs.replace(result, outcome=Outcome.REFUSED))
                        change = await self._shown_change(result)
                    if await self._ask(tool_call, tool, decision, change) is Decision.REJECT:
                        by = self._doors.pop_rejected_by(tool_call.call_id)
                        who = f"{by} rejected it first" if by else "the question about this call was rejected"
                        return _refused(f"{tool.name} was not permitted: {who}.{_how_to_permit(tool)}")
                    was_asked = True
            except HoldfastError as error:
                if error.code is codes.NO_ANSWER:
                    return _refused(self._describe_no_answer(tool, decision, error))
                if error.code is not codes.TOO_LARGE:
                    raise
                return _refused(
                    f"{tool.name} needs permission, and its arguments are too long to be shown. Make them shorter."
                )
        # Decide again, because the mode may have changed while the user was asked.
        return self._permission(self.decide(tool, tool_call), was_asked=was_asked)

    def _describe_no_answer(self, tool: CatalogTool, decision: AccessDecision, error: HoldfastError) -> str:
        """The message for a call that is refused because no door has answered: why it needs permission, and how to give it."""
        message = f"{tool.name} needs permission. {error.message}"
        if "function" in error.details:  # the application's function failed, and must be corrected
            return message
        if decision.rule is not None:  # the rule applies in every mode
            message = f"{message} {decision.reason}"
        if self.how_to_answer:
            message = f"{message} {self.how_to_answer}"
            return message if decision.rule is not None else f"{message} {self.how_to_stop_asking}".rstrip()
        if decision.rule is not None:
            return f"{message} Answer at a terminal or in an editor."
        return (
            f"{message} Allow all tools with the mode {Mode.AUTO}, or answer at a terminal or in an editor."
        )

    def _permission(self, decision: AccessDecision, *, was_asked: bool) -> Permission:
        if decision.access is _ACCESS_REFUSED:
            is_by_mode = decision.step is _BY_MODE and self.rules.max_mode is _AUTO
            return _refused(f"{decision.reason} {self.how_to_choose_mode if is_by_mode else ''}".rstrip())
        is_confirmed = (was_asked or decision.step is not _BY_MODE) and self.mode is not _AUTO
        if was_asked:
            return Permission(is_confirmed=is_confirmed, was_asked=True)
        return _CONFIRMED if is_confirmed else _ALLOWED

    async def _ask(
        self, tool_call: ToolCall, tool: CatalogTool, decision: AccessDecision, change: FileChange | None
    ) -> Decision:
        """Ask the doors about the call, and store the answer. Raise NO_ANSWER if none of them answers."""
        await self._record.flush()  # so that the user sees what the question is about
        question = PermissionQuestion(
            call=await self._shown_call(tool_call),
            title=question_title(tool_call, tool, self._record.trust, self.mode),
            can_remember=decision.can_remember,
            remembers_arguments=_is_shell(tool),
            always_scope="this exact command in this session" if _is_shell(tool) else "in this session",
            change=change,
        )
        try:
            answer = await self._doors.request_permission(question)
        except HoldfastError as error:
            if error.code is codes.TOO_LARGE:
                raise
            # A door that fails has not answered: the call is refused, with what the door said.
            raise HoldfastError(codes.NO_ANSWER, error.message, **error.details) from error
        if answer is Decision.ALLOW_ALWAYS and not decision.can_remember:
            answer = Decision.ALLOW_ONCE
        await self._record.calls.add_decision(tool_call, answer)
        if answer is Decision.ALLOW_ALWAYS:
            self._always_allowed.add(remembered_key(tool, tool_call))
            self._decided.clear()
        return answer

    async def _shown_call(self, tool_call: ToolCall) -> ToolCall:
        """The call as a question shows it, with the user's secrets masked.

        No argument is masked because of its name: the server chooses the names of its parameters.
        """
        return structs.replace(
            tool_call, arguments=await self._record.masks.mask_for_question(tool_call.arguments)
        )

    async def _shown_change(self, preview: ToolResult) -> FileChange | None:
        """The change as a question shows it, with the user's secrets masked. None if it is too large to be shown."""
        change = read_change(preview.data)
        if change is None:
            return None
        try:
            masked = await self._record.masks.mask_for_question(msgspec.json.encode(change))
        except HoldfastError:
            return None
        return msgspec.json.decode(masked, type=FileChange)


def stored_mode(settings: JsonObject, door: DoorKind | None = None) -> Mode:
    """The mode in a stored session's settings; `ask` if there is none.

    The mode `auto` that an application set counts only if an application resumes the session.
    """
    by_application = settings.get(_APPLICATION_MODE, Mode.ASK) if door is DoorKind.PYTHON else Mode.ASK
    try:
        return Mode(str(settings.get("mode", by_application)))
    except ValueError:
        return Mode.ASK


def stored_tools(settings: JsonObject) -> tuple[tuple[ToolPattern, ...], ...]:
    """The groups of patterns in a stored session's settings. A tool must match each group. A group that cannot be read matches no tool."""
    groups = settings.get("tools", [])
    # If the setting is no list, it is read as one group that matches no tool.
    return tuple(map(_read_patterns, groups if isinstance(groups, list) else [None]))


def limits_to_store(
    mode: Mode, tools: Sequence[Sequence[ToolPattern]], door: DoorKind | None = None
) -> JsonObject:
    """The mode and the groups of patterns to store with a session, for when it is resumed.

    The mode `auto` of an application is stored separately, because it does not apply to editors and terminals.
    """
    limits: JsonObject = {}
    if mode is Mode.READ_ONLY:
        limits["mode"] = mode
    elif mode is Mode.AUTO and door is DoorKind.PYTHON:
        limits[_APPLICATION_MODE] = mode
    if tools:
        limits["tools"] = [[str(pattern) for pattern in group] for group in tools]
    return limits


def _read_patterns(group: Json) -> tuple[ToolPattern, ...]:
    try:
        return parse_tool_patterns(group)
    except ValueError:
        return ()


def remembered_key(tool: CatalogTool, tool_call: ToolCall) -> ToolKey:
    """The key under which the answer *always* is remembered: the tool or, for the shell, the command and its folder."""
    server, name = tool_key(tool)
    if not _is_shell(tool):
        return server, name
    try:
        exact = msgspec.json.decode(tool_call.arguments, type=_ShellArguments)
    except msgspec.MsgspecError:
        return server, f"{name} {tool_call.arguments!r}"
    return server, f"{name} {msgspec.json.encode(exact).decode()}"


def tool_kind(tool: CatalogTool) -> str:
    """The tool's kind in ACP's terms. Only built-in tools declare theirs; others are `read` or `other`."""
    meta = tool.definition.meta
    if not isinstance(meta, UnsetType) and tool.server.source is Source.BUILTIN:
        try:
            return msgspec.json.decode(meta, type=_Meta).kind
        except msgspec.ValidationError:
            return "other"
    return "read" if is_read_only(tool) else "other"


def _can_preview(tool: CatalogTool) -> bool:
    return (
        tool.server.name == FILES_SERVER
        and tool.server.source is Source.BUILTIN
        and tool_kind(tool) == "edit"
    )


def _is_shell(tool: CatalogTool) -> bool:
    return tool.server.name == SHELL_SERVER and tool.server.source is Source.BUILTIN


class _ShellArguments(msgspec.Struct):
    """The arguments that the effect of a shell command depends on."""

    command: str
    cwd: str = "."


class _Meta(msgspec.Struct):
    kind: str = msgspec.field(default="other", name="dev.holdfast/kind")


def _how_to_permit(tool: CatalogTool) -> str:
    if tool.server.source is not Source.PROJECT:
        return ""
    return (
        " The approval of a server does not permit its calls. Allow them when you are asked, or choose the mode"
        f" {Mode.AUTO}. If you were not asked, your client has answered for you: see its settings."
    )


def _refused(reason: str) -> Permission:
    result = failed_result(HoldfastError(codes.NOT_PERMITTED, reason))
    return Permission(refusal=structs.replace(result, outcome=Outcome.REFUSED))
