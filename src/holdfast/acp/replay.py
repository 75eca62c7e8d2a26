"""Events as the same updates once more, calling nothing: how a reader sees a conversation that is over."""

from collections.abc import Sequence

from holdfast.acp.translate import Update, updates
from holdfast.model.event import Event, StopReason, ToolCalled, ToolEnded, TurnEnded


class Replay:
    """Replays events one by one. A call that an interruption cut off is shown as failed: nothing runs any more."""

    def __init__(self) -> None:
        self._running: dict[str, None] = {}

    def of(self, event: Event) -> Sequence[Update]:
        """The updates of the next event."""
        match event:
            case ToolCalled(call_id=call_id):
                self._running[call_id] = None
            case ToolEnded(call_id=call_id):
                self._running.pop(call_id, None)
            case TurnEnded(reason=StopReason.INTERRUPTED):
                cut = [_cut_off(call_id) for call_id in self._running]
                self._running.clear()
                return [*cut, *updates(event)]
            case _:
                pass
        return updates(event)


def _cut_off(call_id: str) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "failed"}
