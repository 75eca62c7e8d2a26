"""Deletes one session, or all sessions that were not used for a long time. The audit records of deleted sessions are kept."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.audit.recovery import acquire_and_close
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_SIZE, SessionQuery
from holdfast.store.store import Store, Tx
from holdfast.store.types import Hold, SessionChange, StoredSession

log = logging.getLogger(__name__)

# The title of a large session while it is being deleted.
_PARTLY_DELETED = "(partly deleted)"
_PAUSE_SECONDS = 0.05  # between two sessions, so that other writes are not delayed


async def delete_session(store: Store, audit: Audit, session_id: SessionId, *, reason: str = "") -> None:
    """Delete a session, and append an audit record of the deletion. Raise SESSION_HELD if the session is open."""

    def delete(tx: Tx) -> Hold | None:
        """Delete the session. If it is large, delete a part, and return the hold for the rest."""
        # Record the interrupted calls first: deleting the session deletes their events.
        hold = acquire_and_close(tx, audit, session_id)
        stored = tx.session(session_id)
        if stored is not None:
            audit.append(
                tx,
                make_record(
                    AuditKind.DELETION,
                    stored.context,
                    Subject(),
                    at=tx.now(),
                    outcome="deleted",
                    reason=reason,
                ),
            )
        if not tx.delete_part(hold):
            tx.delete(hold)
            return None
        tx.change(hold, SessionChange(title=_PARTLY_DELETED))
        return hold

    hold = await store.write(delete)
    if hold is not None:
        try:
            await store.delete_in_parts(hold)
        except BaseException:
            await store.release(hold)
            raise


async def find_unused(store: Store, age: timedelta) -> list[StoredSession]:
    """The sessions that were last used more than `age` ago, the most recent first. Open sessions are left out."""
    query = SessionQuery(visibility=ALL_SESSIONS, updated_before=store.now() - age, limit=MAX_PAGE_SIZE)
    unused: list[StoredSession] = []
    while True:
        page = await store.sessions(query)
        unused += [stored for stored in page.items if stored.lease is None]
        if page.cursor is None:
            return unused
        query = replace(query, cursor=page.cursor)


async def delete_unused(store: Store, audit: Audit, age: timedelta) -> list[SessionId]:
    """Delete the sessions that were last used more than `age` ago. Return the ids of the deleted sessions.

    Sessions with damaged events are kept, because their interrupted calls cannot be recorded.
    """
    deleted: list[SessionId] = []
    reason = f"It was last used more than {age.days} days ago."
    for stored in await find_unused(store, age):
        try:
            await delete_session(store, audit, stored.context.session_id, reason=reason)
        except HoldfastError as error:
            if error.code is codes.STORE_CORRUPT:
                extra = {"session": stored.context.session_id, "reason": error.message}
                log.warning("damaged session not deleted", extra=extra)
            elif error.code not in (codes.SESSION_HELD, codes.UNKNOWN_SESSION):  # opened or deleted elsewhere
                raise
        else:
            deleted.append(stored.context.session_id)
        await asyncio.sleep(_PAUSE_SECONDS)
    return deleted
