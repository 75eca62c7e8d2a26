"""Constraints that every store enforces, and their errors."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.store.rows import NewSession, SessionChange, StoredSession

CALLED_PREFIX, ENDED_PREFIX = "called:", "ended:"
MOST_TAGS = 64
LONGEST_TAG = 128
LONGEST_TITLE = 1000
MOST_SETTINGS = 256


def check_new(new: NewSession) -> NewSession:
    """Raise if a field of the new session is too large."""
    _check(new.title, new.tags, new.settings)
    return new


def check_change(change: SessionChange) -> None:
    """Raise if a field of the change is too large."""
    _check(change.title or "", change.tags or (), change.settings or {})


def check_same_session(stored: StoredSession, new: NewSession) -> StoredSession:
    """Return the existing session, or raise if it belongs to another workspace, user, parent or source."""
    context = stored.context
    identity = (context.workspace_id, context.user_id, context.parent_session_id, stored.source)
    asked = (new.context.workspace_id, new.context.user_id, new.context.parent_session_id, new.source)
    if identity != asked:
        raise HoldfastError(
            codes.SESSION_EXISTS,
            f"The session {context.session_id} already exists, for another workspace, user, parent or source.",
        )
    return stored


def default_key(event: Event) -> str | None:
    """The key of an event that can occur only once: the start and end of a call, the end of a turn."""
    match event:
        case ToolCalled(call_id=call_id):
            return f"{CALLED_PREFIX}{call_id}"
        case ToolEnded(call_id=call_id):
            return f"{ENDED_PREFIX}{call_id}"
        case TurnEnded(turn_id=turn_id):
            return f"{ENDED_PREFIX}{turn_id}"
        case _:
            return None


def unknown_session(session_id: SessionId) -> HoldfastError:
    """The error for a session id that the store does not have."""
    return HoldfastError(
        codes.UNKNOWN_SESSION, f"There is no session {session_id[:80]!r}.", session_id=session_id[:80]
    )


def key_reused(session_id: SessionId, key: str, seq: int) -> HoldfastError:
    """The error for a second event with a key that another event has."""
    return HoldfastError(
        codes.KEY_REUSED,
        f"The key {key[:80]!r} belongs to event {seq} of {session_id}, which has other content.",
    )


def row_not_kept(what: str) -> HoldfastError:
    """The error for an insert that stored no row: the database has a foreign trigger."""
    return HoldfastError(codes.STORE_CORRUPT, f"The database discarded {what}. Run `holdfast store check`.")


def _check(title: str, tags: tuple[str, ...], settings: JsonObject) -> None:
    if len(title) > LONGEST_TITLE:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"A title has at most {LONGEST_TITLE} characters, not {len(title)}."
        )
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"A session has at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters."
        )
    if len(settings) > MOST_SETTINGS:
        raise HoldfastError(codes.BAD_ARGUMENT, f"A session has at most {MOST_SETTINGS} settings.")
