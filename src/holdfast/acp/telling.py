"""The events of one session, one after another, as its editor is told: live, and once more when it is loaded."""

from collections.abc import Sequence

from holdfast.acp.translate import Update, updates
from holdfast.model.event import Event, StopReason, ToolCalled, ToolEnded, TurnEnded


class Telling:
    """Knows what an event leaves unsaid: the session's folder, and whose call it is that ends."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._running: dict[str, str] = {}
        """The server of each call that has not ended."""

    def of(self, event: Event) -> Sequence[Update]:
        """The updates of the next event; a call that an interruption cut off is failed, as nothing runs any more."""
        match event:
            case ToolCalled(call_id=call_id, server=server):
                self._running[call_id] = server
                return updates(event, cwd=self._cwd)
            case ToolEnded(call_id=call_id):
                return updates(event, server=self._running.pop(call_id, ""))
            case TurnEnded(reason=StopReason.INTERRUPTED):
                cut = [_cut_off(call_id) for call_id in self._running]
                self._running.clear()
                return [*cut, *updates(event)]
            case _:
                return updates(event)


def _cut_off(call_id: str) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "failed"}
