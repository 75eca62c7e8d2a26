"""Describes what a sub-agent does as text, for editors that show this text in the tool call that started the sub-agent."""

from holdfast.model.event import Event, Outcome, Replied, ToolCalled, ToolEnded
from holdfast.model.event_text import tool_name

_MAX_CHARS = 4000
_SEND_AFTER_CHARS = 200  # each update contains the whole text, so it is not sent for each word


class SubAgentText:
    """The text that one tool call shows. Only its end is kept."""

    def __init__(self) -> None:
        self._text = ""
        self._unsent = 0

    def add(self, event: Event, agent: str) -> str | None:
        """Add an event of the sub-agent with the id `agent`. Return the whole text if it should be sent now."""
        match event:
            case Replied(text=text):
                return self._add(text, at_once="\n" in text)
            case ToolCalled():
                return self._add(f"\n● {agent}: {tool_name(event)}\n", at_once=True)
            case ToolEnded(outcome=outcome) if outcome is not Outcome.COMPLETED:
                return self._add(f"  {outcome}\n", at_once=True)
            case _:
                return None

    def _add(self, text: str, *, at_once: bool) -> str | None:
        self._text = (self._text + text)[-_MAX_CHARS:]
        self._unsent += len(text)
        if not at_once and self._unsent < _SEND_AFTER_CHARS:
            return None
        self._unsent = 0
        return self._text.lstrip("\n")
