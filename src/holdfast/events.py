"""The events of a session, as `session.subscribe()` gives them.

Each is a `StoredEvent`: its number, its time, and the event itself, which is one of the classes below.
"""

from holdfast.model.event import (
    Decision,
    Event,
    HistoryCompacted,
    ModeChanged,
    ModelResponded,
    Outcome,
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
    event_kind,
)
from holdfast.store.types import StoredEvent

__all__ = [
    "Decision",
    "Event",
    "HistoryCompacted",
    "ModeChanged",
    "ModelResponded",
    "Outcome",
    "PermissionDecided",
    "Planned",
    "Prompted",
    "Replied",
    "ServersResolved",
    "SessionClosed",
    "SessionOpened",
    "StopReason",
    "StoredEvent",
    "Thought",
    "Titled",
    "ToolCalled",
    "ToolEnded",
    "ToolStarted",
    "TrustLowered",
    "TurnEnded",
    "UnknownEvent",
    "event_kind",
]
