"""Find a session by its id, or by the first characters of its id."""

from holdfast.audit.record import decode_record
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_SIZE, SessionQuery
from holdfast.store.store import ReadTx, Store
from holdfast.store.types import StoredSession

PREFIX = "sess_"
_MIN_LENGTH = 4


async def find_session(store: Store, id_prefix: str) -> StoredSession:
    """Return the stored session whose id is, or begins with, `id_prefix`; raise if there is none or several."""
    prefix = _full_prefix(id_prefix)
    exact = _parse_exact(prefix)
    if exact is not None and (stored := await store.session(exact)) is not None:
        return stored
    found = await _find_stored(store, prefix) if _is_long_enough(prefix) else []
    if len(found) == 1:
        return found[0]
    raise _not_found(id_prefix, len(found))


def find_audited_session(tx: ReadTx, id_prefix: str | None) -> SessionId | None:
    """Return the id of the session with audit records whose id is, or begins with, `id_prefix`.

    The session may be deleted. A complete id is returned even if it has no records; None is returned for None.
    """
    if id_prefix is None:
        return None
    prefix = _full_prefix(id_prefix)
    exact = _parse_exact(prefix)
    if exact is not None and next(tx.audit_rows(session_id=exact), None) is not None:
        return exact
    found = _find_audited(tx, prefix) if _is_long_enough(prefix) else set[SessionId]()
    if len(found) == 1:
        return found.pop()
    if exact is not None and not found:
        return exact
    raise _not_found(id_prefix, len(found))


def _find_audited(tx: ReadTx, prefix: str) -> set[SessionId]:
    session_ids = (decode_record(row.body).session_id for row in tx.audit_rows())
    return {session_id for session_id in session_ids if session_id.startswith(prefix)}


def _parse_exact(session_id: str) -> SessionId | None:
    try:
        return parse_session_id(session_id)
    except HoldfastError:
        return None


def _full_prefix(id_prefix: str) -> str:
    return (id_prefix if id_prefix.startswith(PREFIX) else PREFIX + id_prefix).rstrip("…")


def _is_long_enough(prefix: str) -> bool:
    return len(prefix) >= len(PREFIX) + _MIN_LENGTH


def _not_found(id_prefix: str, count: int) -> HoldfastError:
    if count:
        return HoldfastError(
            codes.UNKNOWN_SESSION, f"{count} sessions begin with {id_prefix[:80]!r}. Give more of the id."
        )
    short = (
        ""
        if _is_long_enough(_full_prefix(id_prefix))
        else f" Give at least {_MIN_LENGTH} characters of the id."
    )
    return HoldfastError(codes.UNKNOWN_SESSION, f"There is no session {id_prefix[:80]!r}.{short}")


async def _find_stored(store: Store, prefix: str) -> list[StoredSession]:
    found: list[StoredSession] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(SessionQuery(visibility=ALL_SESSIONS, limit=MAX_PAGE_SIZE, cursor=cursor))
        found += [stored for stored in page.items if stored.context.session_id.startswith(prefix)]
        cursor = page.cursor
        if cursor is None:
            return found
