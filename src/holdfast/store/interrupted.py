"""Calls and turns that were cut off: found by their missing end, and ended once."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model.event import Outcome, StopReason, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.rows import OpenTurn
from holdfast.store.store import Reads, Tx

INTERRUPTED = "INTERRUPTED"
_WORDS = f"{INTERRUPTED}: Holdfast was cut off before this call was over; whether it was done is not known."

Note = Callable[[ToolCalled], object]
"""Adds what else is to be written about a call that was cut off, in the commit of its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end that a call or a turn lacks."""

    event: ToolEnded | TurnEnded
    called: ToolCalled | None = None


def end_interrupted(tx: Tx, session_id: SessionId, note: Note | None = None) -> OpenTurn | None:
    """End the session's open calls and its open turn as interrupted; for the one who has just taken hold of it."""
    turn: OpenTurn | None = None
    for ending in endings(tx, session_id):
        appended = tx.append(session_id, ending.event)
        if ending.called is not None and appended.new and note is not None:
            note(ending.called)
        if isinstance(ending.event, TurnEnded):
            turn = OpenTurn(session_id=session_id, turn_id=ending.event.turn_id)
    return turn


def endings(reads: Reads, session_id: SessionId) -> tuple[Ending, ...]:
    """What to add so that nothing of the session is open: the ends of its calls, then that of its turn."""
    session = reads.session(session_id)
    if session is None:
        return ()
    calls = tuple(_ending(called) for called in reads.open_calls(session_id))
    if not session.open_turn:
        return calls
    ended = TurnEnded(turn_id=session.open_turn, reason=StopReason.INTERRUPTED)
    return (*calls, Ending(event=ended))


def _ending(called: ToolCalled) -> Ending:
    ended = ToolEnded(
        call_id=called.call_id,
        outcome=Outcome.CANCELLED,
        content=({"type": "text", "text": _WORDS},),
        code=INTERRUPTED,
    )
    return Ending(event=ended, called=called)
