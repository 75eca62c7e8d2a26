"""A terminal as a session sees it: it can be asked for permission."""

import shutil
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.arguments import in_full
from holdfast.cli.table import plain
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.ports import Powers

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
_AT_FIRST = 40

Ask = Callable[[str, str], Awaitable[str | None]]
"""Asks a question, under what it is about."""


class TerminalDoor:
    """One terminal; without a person at it, nothing is asked."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask

    @property
    def powers(self) -> Powers:
        """A person permits; the files are the disk's."""
        return Powers(permits=self._ask is not None)

    async def permit(self, call: ToolCall, title: str) -> Decision:
        """Show what would be done, and ask until the answer is one; whoever goes away says no."""
        if self._ask is None:
            return Decision.REJECT
        whole = in_full(msgspec.json.decode(call.arguments), shutil.get_terminal_size().columns)
        shown, rest = whole[:_AT_FIRST], whole[_AT_FIRST:]
        name = plain(f"{call.server}.{call.tool}")
        while True:
            view = f"[v]iew the other {len(rest)} lines, " if rest else ""
            answer = await self._ask(f"  {name} may change something. {view}{QUESTION}", _cut(shown, rest))
            if answer is None:
                return Decision.REJECT
            said = answer.strip().lower()
            if said in ANSWERS:
                return ANSWERS[said]
            shown, rest = (rest, []) if said in _VIEW else ([], rest)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """No forms here."""
        raise HoldfastError(codes.NOT_GRANTED, "The terminal has no forms to fill in.")

    async def sample(self, params: JsonObject) -> JsonObject:
        """No model here."""
        raise HoldfastError(codes.NOT_GRANTED, "The terminal has no model of its own.")

    async def read_text(self, path: str) -> str:
        """No buffers here."""
        raise HoldfastError(codes.NOT_GRANTED, "The terminal has no files open.")

    async def write_text(self, path: str, text: str) -> None:
        """No buffers here."""
        raise HoldfastError(codes.NOT_GRANTED, "The terminal has no files open.")


def _cut(shown: list[str], rest: list[str]) -> str:
    more = [f"    … {len(rest)} more lines are not shown yet"] if shown and rest else []
    return "\n".join([*shown, *more])
