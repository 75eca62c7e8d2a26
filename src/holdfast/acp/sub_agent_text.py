"""What a sub-agent does, as text in the tool call that it works for."""

from holdfast.model.event import Event, Outcome, Replied, ToolCalled, ToolEnded
from holdfast.model.event_text import tool_name

_MAX_TEXT = 4000
_SEND_AFTER = 200  # characters: each update contains the whole text


class SubAgentText:
    """The text of one tool call. Only its end is kept."""

    def __init__(self) -> None:
        self._text = ""
        self._unsent = 0

    def add(self, event: Event, agent: str) -> str | None:
        """Add an event of a sub-agent. Return the whole text if it is to be sent now."""
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
        self._text = (self._text + text)[-_MAX_TEXT:]
        self._unsent += len(text)
        if not at_once and self._unsent < _SEND_AFTER:
            return None
        self._unsent = 0
        return self._text.lstrip("\n")
