"""A session as a person names it: by its id, or by as much of the id as tells it from the others."""

from holdfast.audit.record import read_record
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.store.query import MOST, OPERATOR, SessionQuery
from holdfast.store.rows import StoredSession
from holdfast.store.store import Reads, Store

PREFIX = "sess_"
_SHORTEST = 4


async def find_session(store: Store, named: str) -> StoredSession:
    """The session that is meant."""
    name = _whole(named)
    exact = _parsed(name)
    if exact is not None and (stored := await store.session(exact)) is not None:
        return stored
    found = await _beginning(store, name) if _is_enough(name) else []
    if len(found) == 1:
        return found[0]
    raise _not_one(named, len(found))


def session_in_audit(reads: Reads, named: str | None) -> SessionId | None:
    """The session that is meant, which may be deleted: its audit is there all the same. None when none is named."""
    if named is None:
        return None
    name = _whole(named)
    exact = _parsed(name)
    if exact is not None and next(reads.audit_rows(session_id=exact), None) is not None:
        return exact
    found = _in_audit(reads, name) if _is_enough(name) else set[SessionId]()
    if len(found) == 1:
        return found.pop()
    if exact is not None and not found:
        return exact
    raise _not_one(named, len(found))


def _in_audit(reads: Reads, name: str) -> set[SessionId]:
    everyone = (read_record(row.body).session_id for row in reads.audit_rows())
    return {session_id for session_id in everyone if session_id.startswith(name)}


def _parsed(name: str) -> SessionId | None:
    try:
        return parse_session_id(name)
    except HoldfastError:
        return None


def _whole(named: str) -> str:
    name = named if named.startswith(PREFIX) else PREFIX + named
    return name.rstrip("…")


def _is_enough(name: str) -> bool:
    return len(name) >= len(PREFIX) + _SHORTEST


def _not_one(named: str, count: int) -> HoldfastError:
    if count:
        return HoldfastError(
            codes.UNKNOWN_SESSION, f"{count} sessions begin with {named[:80]!r}. Give more of the id."
        )
    few = "" if _is_enough(_whole(named)) else f" (an id's beginning has {_SHORTEST} letters at least)"
    return HoldfastError(
        codes.UNKNOWN_SESSION,
        f"There is no session {named[:80]!r}{few}.",
    )


async def _beginning(store: Store, name: str) -> list[StoredSession]:
    found: list[StoredSession] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(SessionQuery(reach=OPERATOR, limit=MOST, cursor=cursor))
        found += [stored for stored in page.items if stored.context.session_id.startswith(name)]
        cursor = page.cursor
        if cursor is None:
            return found
