"""Finds a session by its id, or by the first characters of its id."""

import shlex
from collections.abc import Iterable

from holdfast.audit.record import decode_record
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_SIZE, SessionQuery
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import StoredSession

_PREFIX = "sess_"
_MIN_TYPED = 4
_SHORT_ID_LENGTH = 13  # the prefix and eight hexadecimal digits


def short_id(session_id: str) -> str:
    """The first characters of a session's id, for tables and commands."""
    return session_id[:_SHORT_ID_LENGTH]


def resume_command(session_id: str, user_id: str | None) -> str:
    """The command that resumes a session, with the user that the session belongs to."""
    user = ("--user", user_id) if user_id else ()
    return shlex.join(("holdfast", "chat", "--resume", short_id(session_id), *user))


async def find_session(store: Store, typed: str) -> StoredSession:
    """Find a stored session by the id that the user typed, or by its first characters. Raise if none or several match."""
    id_start = _complete_prefix(typed)
    whole_id = _parse_whole_id(id_start)
    if whole_id is not None and (stored := await store.session(whole_id)) is not None:
        return stored
    found = await _stored_sessions(store, id_start) if _is_long_enough(id_start) else []
    if len(found) == 1:
        return found[0]
    raise _unknown_or_ambiguous(typed, len(found))


def find_audited_session(tx: ReadTx, typed: str | None) -> SessionId | None:
    """The session id that the user typed, completed from the audit records, so that deleted sessions are found too.

    A whole id need not have records. If the option was not given, `typed` and the result are None.
    """
    if typed is None:
        return None
    id_start = _complete_prefix(typed)
    whole_id = _parse_whole_id(id_start)
    if whole_id is not None and next(tx.audit_rows(session_id=whole_id), None) is not None:
        return whole_id
    found = _audited_ids(tx, id_start) if _is_long_enough(id_start) else set[SessionId]()
    if len(found) == 1:
        return found.pop()
    if whole_id is not None and not found:
        return whole_id
    raise _unknown_or_ambiguous(typed, len(found))


def find_session_id(session_ids: Iterable[str], typed: str) -> str:
    """Find the one id in `session_ids` that equals or begins with the typed text. Raise if none or several match."""
    id_start = _complete_prefix(typed)
    found = [each for each in session_ids if each == typed or each.startswith(id_start)]
    if len(found) == 1 and (found[0] == typed or _is_long_enough(id_start)):
        return found[0]
    raise _unknown_or_ambiguous(typed, len(found) if _is_long_enough(id_start) else 0)


async def _stored_sessions(store: Store, id_start: str) -> list[StoredSession]:
    found: list[StoredSession] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(SessionQuery(visibility=ALL_SESSIONS, limit=MAX_PAGE_SIZE, cursor=cursor))
        found += [stored for stored in page.items if stored.context.session_id.startswith(id_start)]
        cursor = page.cursor
        if cursor is None:
            return found


def _audited_ids(tx: ReadTx, id_start: str) -> set[SessionId]:
    session_ids = (decode_record(row.body).session_id for row in tx.audit_rows())
    return {session_id for session_id in session_ids if session_id.startswith(id_start)}


def _complete_prefix(typed: str) -> str:
    """Add `sess_` if the user left it out, and remove the … at the end of a shortened id."""
    return (typed if typed.startswith(_PREFIX) else _PREFIX + typed).rstrip("…")


def _parse_whole_id(id_start: str) -> SessionId | None:
    try:
        return parse_session_id(id_start)
    except HoldfastError:
        return None


def _is_long_enough(id_start: str) -> bool:
    return len(id_start) >= len(_PREFIX) + _MIN_TYPED


def _unknown_or_ambiguous(typed: str, count: int) -> HoldfastError:
    if count:
        return HoldfastError(
            codes.UNKNOWN_SESSION,
            f"The ids of {count} sessions begin with {typed[:80]!r}. Give more of the id.",
        )
    is_long_enough = _is_long_enough(_complete_prefix(typed))
    advice = "" if is_long_enough else f" Give at least {_MIN_TYPED} characters of the id."
    return HoldfastError(codes.UNKNOWN_SESSION, f"There is no session {typed[:80]!r}.{advice}")
