"""How an event changes the row of its session."""

from dataclasses import replace
from datetime import datetime

from holdfast.model.event import (
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
    Origin,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.trust import lowest_trust
from holdfast.store.types import SessionState, StoredSession

EVENTS_WITHOUT_PROJECTION = (
    Replied,
    Thought,
    Planned,
    ToolCalled,
    ToolStarted,
    ToolEnded,
    PermissionDecided,
    ModelResponded,
    HistoryCompacted,
    MessageSent,
    UnknownEvent,
)
"""Events that do not change the session's row."""
EVENTS_OF_CALLS = (ToolCalled, ToolStarted, ToolEnded)
"""The most frequent of `EVENTS_WITHOUT_PROJECTION`. They have no text to search for."""


def project(session: StoredSession, event: Event, at: datetime) -> StoredSession:
    """The session after the event. An event can only lower the trust."""
    changed = _apply(session, event)
    return replace(changed, updated=at) if is_activity(event) else changed


def changes_session(event: Event, origin: Origin) -> bool:
    """Whether the event changes its session's row. Events of sub-agents do not."""
    return not origin.agent and not isinstance(event, EVENTS_WITHOUT_PROJECTION)


def completes_messages(event: Event) -> bool:
    """Whether all messages before this event are complete, so that they can be indexed."""
    return isinstance(event, TurnEnded | SessionClosed)


def is_activity(event: Event) -> bool:
    """Whether the event counts as a use of the session. Closing and recovery after a crash do not."""
    match event:
        case SessionClosed() | TurnEnded(reason=StopReason.INTERRUPTED):
            return False
        case _:
            return True


def _apply(session: StoredSession, event: Event) -> StoredSession:
    match event:
        case SessionOpened(cwd=cwd, roots=roots, trust_level=trust):
            trust = lowest_trust(session.context.trust_level, trust)
            context = replace(session.context, cwd=cwd, roots=roots, trust_level=trust)
            return replace(session, context=context, state=SessionState.OPEN)
        case SessionClosed():
            return replace(session, state=SessionState.CLOSED)
        case TrustLowered(trust_level=trust):
            trust = lowest_trust(session.context.trust_level, trust)
            return replace(session, context=replace(session.context, trust_level=trust))
        case Titled(title=title):
            return replace(session, title=title)
        case Prompted(turn_id=turn_id) | MessageReceived(turn_id=turn_id):
            return replace(session, open_turn=turn_id)
        case TurnEnded(turn_id=turn_id):
            return replace(session, open_turn="" if session.open_turn == turn_id else session.open_turn)
        case ServersResolved() | ModeChanged():
            return session
        case (
            Replied()
            | Thought()
            | Planned()
            | ToolCalled()
            | ModelResponded()
            | HistoryCompacted()
            | ToolStarted()
            | ToolEnded()
            | PermissionDecided()
            | MessageSent()
            | UnknownEvent()
        ):
            return session
