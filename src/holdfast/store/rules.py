"""What every store refuses, in the same words."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.store.rows import NewSession, SessionChange, StoredSession

CALLED, ENDED = "called:", "ended:"
MOST_TAGS = 64
LONGEST_TAG = 128
LONGEST_TITLE = 1000
MOST_SETTINGS = 256


def check_new(new: NewSession) -> NewSession:
    """A new session is within bounds."""
    _check(new.title, new.tags, new.settings)
    return new


def check_change(change: SessionChange) -> None:
    """A change stays within bounds."""
    _check(change.title or "", change.tags or (), change.settings or {})


def same_session(stored: StoredSession, new: NewSession) -> StoredSession:
    """The session that is there already, if it was made by the same request."""
    context = stored.context
    identity = (context.workspace_id, context.user_id, context.parent_session_id, stored.source)
    asked = (new.context.workspace_id, new.context.user_id, new.context.parent_session_id, new.source)
    if identity != asked:
        raise HoldfastError(
            codes.SESSION_EXISTS,
            f"The session {context.session_id} exists already, for another workspace, user, parent or source.",
        )
    return stored


def once(event: Event) -> str | None:
    """The key of what happens only once: a call is asked for and ends once, a turn ends once. The first to say so counts."""
    match event:
        case ToolCalled(call_id=call_id):
            return f"{CALLED}{call_id}"
        case ToolEnded(call_id=call_id):
            return f"{ENDED}{call_id}"
        case TurnEnded(turn_id=turn_id):
            return f"{ENDED}{turn_id}"
        case _:
            return None


def unknown_session(session_id: SessionId) -> HoldfastError:
    """There is no such session."""
    return HoldfastError(
        codes.UNKNOWN_SESSION, f"There is no session {session_id[:80]!r}.", session_id=session_id[:80]
    )


def key_reused(session_id: SessionId, key: str, seq: int) -> HoldfastError:
    """Two different events claim one key: to keep only one of them would lose the other."""
    return HoldfastError(
        codes.KEY_REUSED,
        f"The key {key[:80]!r} belongs to event {seq} of {session_id}, which is a different one.",
    )


def not_taken(what: str) -> HoldfastError:
    """The database took a row and did not keep it: something was added to it that does not belong there."""
    return HoldfastError(
        codes.STORE_CORRUPT, f"The database did not keep {what} that was written. Run `holdfast store check`."
    )


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
