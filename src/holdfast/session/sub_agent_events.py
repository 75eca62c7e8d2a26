"""Copies the events of an isolated sub-agent, which has a session of its own, to its parent's session."""

import logging
from typing import TYPE_CHECKING

from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    ModelResponded,
    Origin,
    PermissionDecided,
    Planned,
    Replied,
    Thought,
    ToolCalled,
    ToolEnded,
)
from holdfast.session.subscription import Subscription
from holdfast.store.types import StoredEvent

if TYPE_CHECKING:
    from holdfast.session.session import Session

log = logging.getLogger(__name__)
# Not ToolStarted: the store counts the server of a started call as used by the session, but the sub-agent's own session made these calls.
_MIRRORED = (Planned, ToolCalled, ToolEnded, PermissionDecided, ModelResponded)


async def mirror_events(events: Subscription, parent: "Session") -> None:
    """Append the messages, plans, calls and usage of sub-agents to the parent's session, until the subscription ends."""
    agents = set[Origin]()
    try:
        async for stored in events:
            if stored.agent:
                agents.add(stored.origin)
                await _append(stored, parent)
        for origin in agents:
            await parent.record.messages.end_agent(origin)
    except HoldfastError as error:
        log.warning("events of a sub-agent not copied", extra={"reason": error.message})


async def _append(stored: StoredEvent, parent: "Session") -> None:
    event, record = stored.event, parent.record
    if isinstance(event, Replied | Thought):
        await record.messages.append_piece(event, stored.origin)
    elif isinstance(event, _MIRRORED):
        await record.append(event, origin=stored.origin)
