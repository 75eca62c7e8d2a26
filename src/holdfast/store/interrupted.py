"""Turns that a crash cut off: found by their missing end, and ended once."""

from holdfast.model.event import StopReason, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.rows import OpenTurn
from holdfast.store.store import Store, Tx


async def end_interrupted(store: Store, session_id: SessionId) -> OpenTurn | None:
    """End the session's open turn, if it has one, as interrupted; for the one who has just taken hold of it."""
    return await store.write(lambda tx: _end(tx, session_id))


def _end(tx: Tx, session_id: SessionId) -> OpenTurn | None:
    session = tx.session(session_id)
    if session is None or not session.open_turn:
        return None
    turn = OpenTurn(session_id=session_id, turn_id=session.open_turn)
    # The key makes it once: whoever crashes here as well finds the end in place.
    ended = TurnEnded(turn_id=turn.turn_id, reason=StopReason.INTERRUPTED)
    tx.append(session_id, ended, key=f"interrupted:{turn.turn_id}")
    return turn
