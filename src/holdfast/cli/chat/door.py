"""A terminal as a session sees it: it can be asked for permission."""

from collections.abc import Awaitable, Callable

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

Ask = Callable[[str], Awaitable[str | None]]


class TerminalDoor:
    """One terminal; without a person at it, nothing is asked."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask

    @property
    def powers(self) -> Powers:
        """A person permits; the files are the disk's."""
        return Powers(permits=self._ask is not None)

    async def permit(self, call: ToolCall, title: str) -> Decision:
        """Ask until the answer is one; whoever goes away says no."""
        if self._ask is None:
            return Decision.REJECT
        while True:
            answer = await self._ask(f"  {call.server}.{call.tool} may change something. {QUESTION}")
            if answer is None:
                return Decision.REJECT
            decision = ANSWERS.get(answer.strip().lower())
            if decision is not None:
                return decision

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
