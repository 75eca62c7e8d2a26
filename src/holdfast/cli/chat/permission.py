"""Asks the user at the terminal for permission to run a tool."""

import shutil
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.text import format_arguments, replace_unprintable
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import DoorCapabilities
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject

ANSWERS = {
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
QUESTION = "[o]nce, [a]lways in this session, [r]eject? "
_VIEW = ("v", "view")
_FIRST_LINES = 40

Ask = Callable[[str, str], Awaitable[str | None]]
"""Asks a question, after printing the text that the question is about. Returns None at the end of the input."""


class TerminalDoor:
    """The door of a chat: asks the user at the terminal. Without a user (`ask` is None), it rejects every request."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask

    @property
    def capabilities(self) -> DoorCapabilities:
        return DoorCapabilities(permission=self._ask is not None)

    async def request_permission(self, call: ToolCall, title: str) -> Decision:
        """Show the call, and ask until the answer is clear; the end of the input means reject."""
        if self._ask is None:
            return Decision.REJECT
        lines = format_arguments(msgspec.json.decode(call.arguments), shutil.get_terminal_size().columns)
        shown, rest = lines[:_FIRST_LINES], lines[_FIRST_LINES:]
        while True:
            view = f"[v]iew the other {len(rest)} lines, " if rest else ""
            answer = await self._ask(
                f"  {replace_unprintable(title)} may change something. {view}{QUESTION}",
                _join_lines(shown, rest),
            )
            if answer is None:
                return Decision.REJECT
            answer = answer.strip().lower()
            if answer in ANSWERS:
                return ANSWERS[answer]
            shown, rest = (rest, []) if answer in _VIEW else ([], rest)

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot show forms.")

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal has no model for sampling.")

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot read files.")

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "The terminal cannot write files.")


def _join_lines(shown: list[str], rest: list[str]) -> str:
    more = [f"    … {len(rest)} more lines are not shown yet"] if shown and rest else []
    return "\n".join([*shown, *more])
