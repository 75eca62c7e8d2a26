"""A session as a person names it: by its id, or by as much of the id as tells it from the others."""

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import parse_session_id
from holdfast.store.query import MOST, OPERATOR, SessionQuery
from holdfast.store.rows import StoredSession
from holdfast.store.store import Store

PREFIX = "sess_"
_SHORTEST = 4


async def find_session(store: Store, named: str) -> StoredSession:
    """The session that is meant."""
    name = named if named.startswith(PREFIX) else PREFIX + named
    name = name.rstrip("…")
    try:
        exact = await store.session(parse_session_id(name))
    except HoldfastError:
        exact = None
    if exact is not None:
        return exact
    found = await _beginning(store, name) if len(name) >= len(PREFIX) + _SHORTEST else []
    if len(found) == 1:
        return found[0]
    if found:
        raise HoldfastError(
            codes.UNKNOWN_SESSION, f"{len(found)} sessions begin with {named[:80]!r}. Give more of the id."
        )
    raise HoldfastError(
        codes.UNKNOWN_SESSION,
        f"There is no session {named[:80]!r}. See which there are: holdfast sessions list",
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
