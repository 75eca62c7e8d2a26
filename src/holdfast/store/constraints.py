"""The constraints that every store enforces, and the errors for them."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, MessageReceived, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.store.types import NewSession, SessionChange, StoredSession

CALLED_PREFIX, ENDED_PREFIX, RECEIVED_PREFIX = "called:", "ended:", "received:"
_KEYED_EVENTS: dict[type[Event], tuple[str, Callable[[Any], str]]] = {
    ToolCalled: (CALLED_PREFIX, attrgetter("call_id")),
    ToolEnded: (ENDED_PREFIX, attrgetter("call_id")),
    TurnEnded: (ENDED_PREFIX, attrgetter("turn_id")),
    MessageReceived: (RECEIVED_PREFIX, attrgetter("message_id")),
}
"""The events that can occur only once, each with its default key: a prefix, and the id that follows it."""
MAX_TAGS = 64
MAX_TAG_LENGTH = 128
MAX_TITLE_LENGTH = 1000
MAX_SETTINGS = 256


def check_new(new: NewSession) -> NewSession:
    """The new session. Raise if a field of it is too large."""
    _check_sizes(new.title, new.tags, new.settings)
    return new


def check_change(change: SessionChange) -> None:
    """Raise if a field of the change is too large."""
    _check_sizes(change.title or "", change.tags or (), change.settings or {})


def check_same_session(stored: StoredSession, new: NewSession) -> StoredSession:
    """The stored session. Raise if it has another workspace, user, parent or source than the new one."""
    context = stored.context
    existing = (context.workspace_id, context.user_id, context.parent_session_id, stored.source)
    requested = (new.context.workspace_id, new.context.user_id, new.context.parent_session_id, new.source)
    if existing != requested:
        raise HoldfastError(
            codes.SESSION_EXISTS,
            f"The session {context.session_id} already exists, with another workspace, user, parent or source. Use a new session id.",
        )
    return stored


def default_key(event: Event) -> str | None:
    """The key of an event that can occur only once, such as the end of a call; None for other events."""
    keyed = _KEYED_EVENTS.get(type(event))
    if keyed is None:
        return None
    prefix, read_id = keyed
    return f"{prefix}{read_id(event)}"


def unknown_session(session_id: SessionId) -> HoldfastError:
    """The error for a session id that the store does not have."""
    return HoldfastError(
        codes.UNKNOWN_SESSION, f"There is no session {session_id[:80]!r}.", session_id=session_id[:80]
    )


def key_reused(session_id: SessionId, key: str, seq: int) -> HoldfastError:
    """The error for an event with a key that a different event of the session already has."""
    return HoldfastError(
        codes.KEY_REUSED,
        f"The key {key[:80]!r} is already used by event {seq} of {session_id}, which differs from this event.",
    )


def insert_discarded(what: str) -> HoldfastError:
    """The error for an insert that stored no row, because a trigger that Holdfast did not create discarded it."""
    return HoldfastError(codes.STORE_CORRUPT, f"The database discarded {what}. Run `holdfast store check`.")


def _check_sizes(title: str, tags: tuple[str, ...], settings: JsonObject) -> None:
    if len(title) > MAX_TITLE_LENGTH:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The title is too long: {len(title)} characters (at most {MAX_TITLE_LENGTH}).",
        )
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in tags):
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"Use at most {MAX_TAGS} tags, each with at most {MAX_TAG_LENGTH} characters."
        )
    if len(settings) > MAX_SETTINGS:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"There are too many settings: {len(settings)} (at most {MAX_SETTINGS})."
        )
