"""End the calls and turns that a crash left open."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model.event import Outcome, StopReason, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.store import ReadTx, Tx

INTERRUPTED = "INTERRUPTED"
_INTERRUPTED_TEXT = (
    f"{INTERRUPTED}: Holdfast stopped before this call ended; it is unknown whether the call took effect."
)

OnInterruptedCall = Callable[[ToolCalled], object]
"""Called for each call that is ended, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingEnd:
    """The missing end of a call (then `call` is its request) or of a turn."""

    event: ToolEnded | TurnEnded
    call: ToolCalled | None = None


def end_interrupted(tx: Tx, session_id: SessionId, on_call: OnInterruptedCall | None = None) -> None:
    """End the session's open calls and its open turn as interrupted. The caller must hold the lease."""
    for end in missing_ends(tx, session_id):
        appended = tx.append(session_id, end.event)
        if end.call is not None and appended.is_new and on_call is not None:
            on_call(end.call)


def missing_ends(tx: ReadTx, session_id: SessionId) -> tuple[MissingEnd, ...]:
    """The missing ends of the session's open calls, then of its open turn."""
    session = tx.session(session_id)
    if session is None:
        return ()
    calls = tuple(_missing_call_end(call) for call in tx.open_calls(session_id))
    if not session.open_turn:
        return calls
    ended = TurnEnded(turn_id=session.open_turn, reason=StopReason.INTERRUPTED)
    return (*calls, MissingEnd(event=ended))


def _missing_call_end(call: ToolCalled) -> MissingEnd:
    ended = ToolEnded(
        call_id=call.call_id,
        outcome=Outcome.CANCELLED,
        content=({"type": "text", "text": _INTERRUPTED_TEXT},),
        code=INTERRUPTED,
    )
    return MissingEnd(event=ended, call=call)
