"""Crash recovery: close the sessions of dead hosts, and record their interrupted calls."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime

from holdfast.audit.audit import Audit
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import SessionClosed
from holdfast.model.ids import SessionId
from holdfast.store.errors import is_transient
from holdfast.store.lease import is_abandoned
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_SIZE, SessionQuery
from holdfast.store.store import Store, Tx
from holdfast.store.types import Hold, SessionState, StoredSession

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_TAKEN_BY_ANOTHER_HOST = (codes.SESSION_HELD, codes.UNKNOWN_SESSION)  # opened or deleted there


async def recover_sessions(store: Store, audit: Audit) -> None:
    """Close every open session that no live host holds: now, and not only when it is opened again, which may never happen.

    The calls that were interrupted in it get their records.
    """
    query = SessionQuery(visibility=ALL_SESSIONS, state=SessionState.OPEN, limit=MAX_PAGE_SIZE)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            if _is_abandoned(stored, store.now()):
                await _recover(store, audit, stored.context.session_id)
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def recover_session(tx: Tx, audit: Audit, session_id: SessionId) -> Hold:
    """Acquire a session without a live owner, end its interrupted calls and turn, and close it. The caller ends the hold."""
    hold = tx.acquire(session_id)
    stored = tx.session(session_id)
    if stored is not None:
        audit.end_and_record_interrupted(tx, hold, stored.context)
        if stored.state is SessionState.OPEN:
            tx.append(hold, SessionClosed(reason="its process ended"))
    return hold


def _is_abandoned(stored: StoredSession, now: datetime) -> bool:
    """Whether its owner is dead, or it has no lease: a backup is made without leases."""
    return stored.lease is None or is_abandoned(stored.lease, now)


async def _recover(store: Store, audit: Audit, session_id: SessionId) -> None:
    while True:
        try:
            await store.write(lambda tx: tx.release(recover_session(tx, audit, session_id)))
        except HoldfastError as error:
            if is_transient(error):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if error.code not in _TAKEN_BY_ANOTHER_HOST:
                log.warning("session not recovered", extra={"session": session_id, "reason": error.message})
        return
