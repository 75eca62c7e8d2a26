"""Sessions whose owner died: the next host that comes ends what it left open, records that, and closes them."""

import asyncio
import logging
from dataclasses import replace

from holdfast.audit.audit import Audit
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import SessionClosed
from holdfast.model.ids import SessionId
from holdfast.store import clock
from holdfast.store.database import passes
from holdfast.store.lease import is_abandoned
from holdfast.store.query import MOST, OPERATOR, SessionQuery
from holdfast.store.rows import SessionState, StoredSession
from holdfast.store.store import Store, Tx

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0


async def end_abandoned(store: Store, audit: Audit) -> None:
    """Settle every session whose owner is dead: nobody may ever open it again."""
    query = SessionQuery(reach=OPERATOR, state=SessionState.OPEN, limit=MOST)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            if _is_abandoned(stored):
                await _end(store, audit, stored.context.session_id)
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def settle(tx: Tx, audit: Audit, session_id: SessionId) -> None:
    """Close a session that nobody works in, within a transaction, and end what was cut off in it first."""
    tx.hold(session_id)
    stored = tx.session(session_id)
    if stored is not None:
        audit.end_interrupted(tx, stored.context)
        if stored.state is SessionState.OPEN:
            tx.append(session_id, SessionClosed(reason="its process ended"))
    tx.let_go(session_id)


def _is_abandoned(stored: StoredSession) -> bool:
    """Whether its owner is dead, or nobody's hold is left, as in a copy."""
    return stored.lease is None or is_abandoned(stored.lease, clock.now())


async def _end(store: Store, audit: Audit, session_id: SessionId) -> None:
    while True:
        try:
            await store.write(lambda tx: settle(tx, audit, session_id))
        except HoldfastError as error:
            if passes(error):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if error.code not in (codes.SESSION_HELD, codes.UNKNOWN_SESSION):  # opened, or deleted meanwhile
                log.warning("session not ended", extra={"session": session_id, "reason": error.message})
        return
