"""Closes the sessions of dead hosts, and records their interrupted calls."""

import asyncio
import logging
import time
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

_RETRY_SECONDS = 5.0  # how long to wait after a failure that may be temporary
_MAX_WITHOUT_PAUSE = 50  # sessions
_PAUSE_FACTOR = 4  # each pause is this many times as long as the work before it
_TAKEN_BY_ANOTHER_HOST = (codes.SESSION_HELD, codes.UNKNOWN_SESSION)  # opened or deleted by that host


async def close_abandoned_sessions(store: Store, audit: Audit) -> None:
    """Close every open session that no live host holds, and record the calls that were interrupted.

    After the first `_MAX_WITHOUT_PAUSE` sessions, it pauses after each one, so that other requests are not delayed.
    """
    closed = 0
    query = SessionQuery(visibility=ALL_SESSIONS, state=SessionState.OPEN, limit=MAX_PAGE_SIZE)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            if _is_abandoned(stored, store.now()):
                began = time.monotonic()
                await _close_with_retries(store, audit, stored.context.session_id)
                closed += 1
                if closed > _MAX_WITHOUT_PAUSE:
                    await asyncio.sleep(_PAUSE_FACTOR * (time.monotonic() - began))
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def acquire_and_close(tx: Tx, audit: Audit, session_id: SessionId) -> Hold:
    """Acquire a session that no live host holds, end its interrupted calls and turn, and close it. The caller releases the hold."""
    hold = tx.acquire(session_id)
    stored = tx.session(session_id)
    if stored is not None:
        audit.end_and_record_interrupted(tx, hold, stored.context)
        if stored.state is SessionState.OPEN:
            tx.append(hold, SessionClosed(reason="its process ended"))
    return hold


def _is_abandoned(stored: StoredSession, now: datetime) -> bool:
    """Whether the process that held the session is dead. In a backup, sessions have no lease."""
    return stored.lease is None or is_abandoned(stored.lease, now)


async def _close_with_retries(store: Store, audit: Audit, session_id: SessionId) -> None:
    while True:
        try:
            await store.write(lambda tx: tx.release(acquire_and_close(tx, audit, session_id)))
        except HoldfastError as error:
            if is_transient(error):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if error.code not in _TAKEN_BY_ANOTHER_HOST:
                log.warning(
                    "session of a dead host not closed",
                    extra={"session": session_id, "reason": error.message},
                )
        return
