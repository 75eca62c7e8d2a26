"""The door of a chat: asks the user at the terminal for permission to run a tool."""

import shutil
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.diff import diff_lines
from holdfast.cli.text import escape_unprintable, format_arguments, replace_unprintable, wrap
from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Event, PermissionDecided, ToolEnded
from holdfast.model.json import JsonObject

_DECISIONS = {
    "y": Decision.ALLOW_ONCE,
    "yes": Decision.ALLOW_ONCE,
    "o": Decision.ALLOW_ONCE,
    "once": Decision.ALLOW_ONCE,
    "a": Decision.ALLOW_ALWAYS,
    "always": Decision.ALLOW_ALWAYS,
    "n": Decision.REJECT,
    "no": Decision.REJECT,
    "r": Decision.REJECT,
    "reject": Decision.REJECT,
}
_DECISION_TEXTS = {
    Decision.ALLOW_ONCE: "allowed once",
    Decision.ALLOW_ALWAYS: "always allowed in this session",
    Decision.REJECT: "rejected",
}
_MAY_CHANGE = ("may change something.", "[o]nce, [a]lways in this session, [r]eject? ")
_EVERY_CALL = ("needs your permission for every call.", "[o]nce, [r]eject? ")
_VIEW_ANSWERS = ("v", "view")
_MAX_LINES_SHOWN = 40

Ask = Callable[[str, str], Awaitable[str | None]]
"""Asks a question, after printing the text that the question is about. Returns None at the end of the input."""


class TerminalDoor:
    """Asks the user at the terminal. In a pipe there is no user (`ask` is None), and every call that needs permission is rejected."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._unanswered: set[str] = set()
        """The calls about which the user was asked and has not answered."""

    @property
    def capabilities(self) -> DoorCapabilities:
        return DoorCapabilities(permission=self._ask is not None)

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Show the call, and ask until the user allows or rejects it. The end of the input counts as a rejection."""
        if self._ask is None:
            return Decision.REJECT
        call_id = question.call.call_id
        self._unanswered.add(call_id)
        decision = await _ask_about(self._ask, question)
        self._unanswered.discard(call_id)
        return decision

    def pop_decision_of_others(self, event: Event) -> str:
        """What another door decided about a call, if the user was asked about the call, too; else an empty text."""
        match event:
            case PermissionDecided(call_id=call_id, decision=decision) if call_id in self._unanswered:
                self._unanswered.discard(call_id)
                return f"answered elsewhere: {_DECISION_TEXTS[decision]}"
            case ToolEnded(call_id=call_id):
                self._unanswered.discard(call_id)
            case _:
                pass
        return ""

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot show forms.")

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal has no model for sampling.")

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot read files.")

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot write files.")


async def _ask_about(ask: Ask, question: PermissionQuestion) -> Decision:
    why, answers = _MAY_CHANGE if question.can_remember else _EVERY_CALL
    lines = _describe(question)
    shown, rest = lines[:_MAX_LINES_SHOWN], lines[_MAX_LINES_SHOWN:]
    while True:
        view = f"[v]iew the other {len(rest)} lines, " if rest else ""
        answer = await ask(
            f"  {replace_unprintable(question.title)} {why} {view}{answers}", _join_lines(shown, rest)
        )
        if answer is None:
            return Decision.REJECT
        answer = answer.strip().lower()
        decision = _DECISIONS.get(answer)
        if decision is not None and (question.can_remember or decision is not Decision.ALLOW_ALWAYS):
            return decision
        shown, rest = (rest, []) if answer in _VIEW_ANSWERS else ([], rest)


def _describe(question: PermissionQuestion) -> list[str]:
    """The change that the call would make, if it is known, else its arguments."""
    change, width = question.change, shutil.get_terminal_size().columns
    if change is None:
        return format_arguments(msgspec.json.decode(question.call.arguments), width)
    lines = [change.path + (" (new file)" if change.old_text is None else ""), *diff_lines(change)]
    return [row for line in lines for row in wrap(f"    {escape_unprintable(line)}", width)]


def _join_lines(shown: list[str], rest: list[str]) -> str:
    more = [f"    … {len(rest)} more lines are not shown yet"] if shown and rest else []
    return "\n".join([*shown, *more])
