"""Describes a stored session for users and for programs."""

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.model.event import ToolCalled
from holdfast.model.event_text import tool_name
from holdfast.model.json import JsonObject
from holdfast.store.lease import is_interrupted
from holdfast.store.store import Store
from holdfast.store.types import StoredSession

_MAX_EVENTS_READ = 20


def session_to_json(stored: StoredSession) -> JsonObject:
    """The session as `--json` prints it."""
    context = stored.context
    return {
        "id": context.session_id,
        "title": stored.title,
        "state": stored.state,
        "source": stored.source,
        "cwd": context.cwd,
        "roots": list(context.roots),
        "workspace": context.workspace_id,
        "trust_level": context.trust_level,
        "user": context.user_id,
        "parent": context.parent_session_id,
        "tags": list(stored.tags),
        "created": stored.created.isoformat(),
        "updated": stored.updated.isoformat(),
        "events": stored.last_seq,
        "interrupted": is_interrupted(stored),
    }


async def with_title(store: Store, stored: StoredSession) -> StoredSession:
    """The session. If it has no title, because nothing was said, its title is the first call, such as `called files.list`."""
    if stored.title:
        return stored
    first = await store.read(lambda tx: tx.events(stored.context.session_id, 0, _MAX_EVENTS_READ))
    calls = (each.event for each in first if isinstance(each.event, ToolCalled))
    return replace(stored, title=next((f"called {tool_name(call)}" for call in calls), ""))


def time_ago(moment: datetime) -> str:
    """How long ago a moment was, such as "5 min ago"; after a day, its date."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 24 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return moment.astimezone().strftime("%Y-%m-%d")


def describe_open_turn(stored: StoredSession) -> str:
    """Whether the last turn "was interrupted" or "is running in …"; empty if it has ended."""
    if not stored.open_turn:
        return ""
    if stored.lease is None or is_interrupted(stored):
        return "was interrupted"
    return f"is running in {stored.lease.owner}"
