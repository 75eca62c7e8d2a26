"""End the calls and turns that a crash or a failed write left open."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model.event import OWN_AGENT, Origin, Outcome, StopReason, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.lease import is_held
from holdfast.store.store import ReadTx, Tx
from holdfast.store.types import Hold, SessionState, StoredEvent, StoredSession

INTERRUPTED = "INTERRUPTED"
_INTERRUPTED_TEXT = (
    f"{INTERRUPTED}: Holdfast stopped before this call ended; it is unknown whether the call took effect."
)

OnInterruptedCall = Callable[[ToolCalled], object]
"""Called for each call that `end_interrupted` ends, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingEnd:
    """The end of a call or of a turn that was not stored, because of a crash or a failed write."""

    event: ToolEnded | TurnEnded
    call: ToolCalled | None = None
    """The request of the call; None for the end of a turn."""
    origin: Origin = OWN_AGENT


def end_interrupted(tx: Tx, hold: Hold, on_call: OnInterruptedCall | None = None) -> None:
    """End the session's open calls and its open turn as interrupted."""
    for end in missing_ends(tx, hold.session_id):
        appended = tx.append(hold, end.event, origin=end.origin)
        if end.call is not None and appended.is_new and on_call is not None:
            on_call(end.call)


def missing_ends(tx: ReadTx, session_id: SessionId) -> tuple[MissingEnd, ...]:
    """The missing ends of the session's open calls, then the missing end of its open turn."""
    session = tx.session(session_id)
    if session is None:
        return ()
    calls = tuple(
        _missing_call_end(stored, stored.event)
        for stored in tx.open_calls(session_id)
        if isinstance(stored.event, ToolCalled)
    )
    if not session.open_turn:
        return calls
    ended = TurnEnded(turn_id=session.open_turn, reason=StopReason.INTERRUPTED)
    return (*calls, MissingEnd(event=ended))


def interrupted_ends(tx: ReadTx, session: StoredSession) -> tuple[MissingEnd, ...]:
    """The missing ends of a session that no live process holds: the next host stores them. Empty while a process holds it."""
    if is_held(session):
        return ()
    # All calls of a session that was closed and released have ended, so its calls need not be read.
    is_complete = session.state is SessionState.CLOSED and session.lease is None and not session.open_turn
    return () if is_complete else missing_ends(tx, session.context.session_id)


def _missing_call_end(stored: StoredEvent, call: ToolCalled) -> MissingEnd:
    ended = ToolEnded(
        call_id=call.call_id,
        outcome=Outcome.CANCELLED,
        content=({"type": "text", "text": _INTERRUPTED_TEXT},),
        code=INTERRUPTED,
    )
    return MissingEnd(event=ended, call=call, origin=stored.origin)
