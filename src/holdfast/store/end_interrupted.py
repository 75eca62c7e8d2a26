"""Ends the calls and turns that a crash or a failed write left open."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model.event import (
    MAIN_AGENT_ORIGIN,
    Origin,
    Outcome,
    StopReason,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.ids import SessionId
from holdfast.store.lease import is_held
from holdfast.store.store import ReadTx, Tx
from holdfast.store.types import Hold, SessionState, StoredEvent, StoredSession

INTERRUPTED = "INTERRUPTED"
_MAY_HAVE_RUN = "it is unknown whether the call took effect"
_NEVER_MADE = "the call was never made"
_INTERRUPTED_TEXT = f"{INTERRUPTED}: Holdfast stopped before this call ended; {_MAY_HAVE_RUN}."
_NEVER_MADE_TEXT = f"{INTERRUPTED}: Holdfast stopped before this call was sent to its server; {_NEVER_MADE}."
_PAGE = 500

OnInterruptedCall = Callable[[ToolCalled], object]
"""Called for each call that `end_interrupted` ends, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingEnd:
    """An end that was not stored: of a call or of a turn."""

    event: ToolEnded | TurnEnded
    call: ToolCalled | None = None
    """The request of the call; None for the end of a turn."""
    origin: Origin = MAIN_AGENT_ORIGIN


def end_interrupted(tx: Tx, hold: Hold, on_call: OnInterruptedCall | None = None) -> None:
    """End the session's open calls and its open turn as interrupted."""
    for end in missing_ends(tx, hold.session_id):
        appended = tx.append(hold, end.event, origin=end.origin)
        if end.call is not None and appended.is_new and on_call is not None:
            on_call(end.call)


def missing_ends(tx: ReadTx, session_id: SessionId) -> tuple[MissingEnd, ...]:
    """The missing ends of the session's open calls, then of its open turn."""
    session = tx.session(session_id)
    if session is None:
        return ()
    open_calls = tx.open_calls(session_id)
    started = _started_calls(tx, session_id, open_calls)
    calls = tuple(
        _missing_call_end(stored, stored.event, was_started=stored.event.call_id in started)
        for stored in open_calls
        if isinstance(stored.event, ToolCalled)
    )
    if not session.open_turn:
        return calls
    ended = TurnEnded(turn_id=session.open_turn, reason=StopReason.INTERRUPTED)
    return (*calls, MissingEnd(event=ended))


def describe_interrupted(event: ToolEnded) -> str:
    """What is known about the effect of an interrupted call."""
    texts = [block.get("text") for block in event.content]
    return _NEVER_MADE if texts == [_NEVER_MADE_TEXT] else _MAY_HAVE_RUN


def missing_ends_unless_held(tx: ReadTx, session: StoredSession) -> tuple[MissingEnd, ...]:
    """The session's missing ends; none if a live process holds the session, because its calls are then still running."""
    if is_held(session):
        return ()
    # All calls of a session that was closed and released have ended, so its calls need not be read.
    is_complete = session.state is SessionState.CLOSED and session.lease is None and not session.open_turn
    return () if is_complete else missing_ends(tx, session.context.session_id)


def _started_calls(tx: ReadTx, session_id: SessionId, open_calls: tuple[StoredEvent, ...]) -> frozenset[str]:
    """The ids of the open calls that may have been sent to their servers. Before a call is sent, its `ToolStarted` is stored.

    The calls of sub-agents always count, because the `ToolStarted` of a sub-agent with a session of its own is stored only in that session.
    """
    called = {stored.event.call_id: stored for stored in open_calls if isinstance(stored.event, ToolCalled)}
    started = {call_id for call_id, stored in called.items() if stored.origin.agent}
    after = min((stored.seq for stored in called.values()), default=0)
    while len(started) < len(called) and (page := tx.events(session_id, after, _PAGE)):
        started |= {stored.event.call_id for stored in page if isinstance(stored.event, ToolStarted)}
        after = page[-1].seq
    return frozenset(started & called.keys())


def _missing_call_end(stored: StoredEvent, call: ToolCalled, *, was_started: bool) -> MissingEnd:
    text = _INTERRUPTED_TEXT if was_started else _NEVER_MADE_TEXT
    ended = ToolEnded(
        call_id=call.call_id,
        outcome=Outcome.CANCELLED,
        content=({"type": "text", "text": text},),
        code=INTERRUPTED,
    )
    return MissingEnd(event=ended, call=call, origin=stored.origin)
