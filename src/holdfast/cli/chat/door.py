"""Asks the user of a chat questions at the terminal: permission for a call, and the forms of servers."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.chat.form import DECLINE, FormDeclinedError, fill_in
from holdfast.cli.diff import diff_lines
from holdfast.cli.terminal_text import (
    escape_unprintable,
    format_arguments,
    replace_unprintable,
    wrap,
    wrap_question,
)
from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Event, PermissionDecided, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.model.plural import count

# The question offers o, a and r. Users also type y and n.
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
_VIEW_ANSWERS = ("v", "view")
_MAX_LINES_SHOWN = 40

Ask = Callable[[str, str], Awaitable[str | None]]
"""Asks a question, after printing the text that the question is about. Returns None at the end of the input."""


class TerminalDoor:
    """The `Door` of a chat, through which its session reaches the user.

    Without a terminal, `ask` is None, and this door answers no question.
    """

    def __init__(self, ask: Ask | None, on_withdrawn: Callable[[], None] = lambda: None) -> None:
        """`on_withdrawn` is called when a server's question is withdrawn before the user has answered."""
        self._ask = ask
        self._on_withdrawn = on_withdrawn
        self._unanswered: set[str] = set()
        """The ids of the calls with a question that the user has not answered."""

    @property
    def capabilities(self) -> DoorCapabilities:
        can_ask = self._ask is not None
        return DoorCapabilities(
            permission=can_ask,
            elicitation=can_ask,
            elicitation_url=can_ask,
            name="a terminal" if can_ask else "",
        )

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Show the call, and ask until the user allows or rejects it. The end of the input counts as a rejection."""
        if self._ask is None:
            return Decision.REJECT
        call_id = question.call.call_id
        self._unanswered.add(call_id)
        decision = await _ask_permission(self._ask, question)
        self._unanswered.discard(call_id)
        return decision

    def note_event(self, event: Event) -> str:
        """Note that a call's question was decided at another door, or that the call has ended.

        Return a description of the decision if this user is still being asked; the user's answer then has no effect. Empty otherwise.
        """
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
        if self._ask is None:
            raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "There is no user at a terminal.")
        try:
            return await _elicit(self._ask, params)
        except asyncio.CancelledError:
            self._on_withdrawn()
            raise

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal has no model for sampling.")

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot read files.")

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot write files.")


async def _elicit(ask: Ask, params: JsonObject) -> JsonObject:
    """Show a server's question, and ask for the fields of its form. Returns the result of MCP's `elicitation/create`."""
    message, schema, url = str(params.get("message", "")), params.get("requestedSchema"), params.get("url")
    about = [line for text in message.split("\n") for line in wrap(f"  {escape_unprintable(text)}", _width())]
    if isinstance(url, str):
        about += ["  Open this page in your browser, if you trust it:", f"    {escape_unprintable(url)}"]
    if isinstance(url, str) or not isinstance(schema, dict) or not schema.get("properties"):
        question = "  [y]es, I opened it, or [n]o? " if isinstance(url, str) else "  [y]es or [n]o? "
        return {"action": await _ask_yes_or_no(ask, question, "\n".join(about))}
    pending = [*about, f"  Type {DECLINE} to decline."]  # printed before the next question

    async def ask_field(question: str) -> str | None:
        shown = "\n".join(pending)
        pending.clear()
        return await ask(replace_unprintable(question), shown)

    try:
        content = await fill_in(schema, ask_field, lambda line: pending.append(escape_unprintable(line)))
    except FormDeclinedError:
        return {"action": "decline"}
    return {"action": "accept", "content": content}


async def _ask_yes_or_no(ask: Ask, question: str, about: str) -> str:
    while True:
        answer = await ask(question, about)
        match answer.strip().lower() if answer is not None else "n":
            case "y" | "yes":
                return "accept"
            case "n" | "no":
                return "decline"
            case _:
                about = "  Type y or n."


def _width() -> int:
    return shutil.get_terminal_size().columns


async def _ask_permission(ask: Ask, question: PermissionQuestion) -> Decision:
    """Show the call and ask, again after an answer that is not one of the choices."""
    why, always = " needs your permission for every call.", ""
    if question.can_remember:
        why = " runs a command." if question.remembers_arguments else " may change something."
        always = f"[a]lways {replace_unprintable(question.always_scope)}, "
    if question.title.endswith("?"):  # the title is the whole question, as about AGENTS.md
        why = ""
    lines = _describe(question)
    shown, rest = lines[:_MAX_LINES_SHOWN], lines[_MAX_LINES_SHOWN:]
    while True:
        view = f"[v]iew the other {count(len(rest), 'line')}, " if rest else ""
        answer = await ask(
            wrap_question(
                f"  {replace_unprintable(question.title)}{why}", f"{view}[o]nce, {always}[r]eject? "
            ),
            _join_lines(shown, rest),
        )
        if answer is None:
            return Decision.REJECT
        answer = answer.strip().lower()
        decision = _DECISIONS.get(answer)
        if decision is not None and (question.can_remember or decision is not Decision.ALLOW_ALWAYS):
            return decision
        if answer in _VIEW_ANSWERS and rest:
            shown, rest = rest, []
            continue
        known = [*("v" if rest else ""), "o", *("a" if question.can_remember else "")]
        shown = [f"  Type {', '.join(known)} or r."]


def _describe(question: PermissionQuestion) -> list[str]:
    """The change that the call would make, if it is known, else its arguments."""
    change, width = question.change, shutil.get_terminal_size().columns
    if change is None:
        return format_arguments(msgspec.json.decode(question.call.arguments), width)
    lines = [change.path + (" (new file)" if change.old_text is None else ""), *diff_lines(change)]
    if change.old_text == change.new_text:
        lines.append("(the content stays the same)")
    return [row for line in lines for row in wrap(f"    {escape_unprintable(line)}", width)]


def _join_lines(shown: list[str], rest: list[str]) -> str:
    """The lines to show now, and the number of the lines that are not shown yet."""
    more = [f"    … {count(len(rest), 'more line')} not shown yet"] if shown and rest else []
    return "\n".join([*shown, *more])
