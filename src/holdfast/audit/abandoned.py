"""Sessions whose owner died: what it left open is ended, and recorded, by the next host that comes."""

import logging

from holdfast.audit.audit import Audit
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store import clock
from holdfast.store.lease import is_abandoned
from holdfast.store.store import Store, Tx

log = logging.getLogger(__name__)


async def end_abandoned(store: Store, audit: Audit) -> None:
    """End what was cut off in every session whose owner is dead: nobody may ever open it again."""
    for lease in await store.read(lambda reads: reads.leases()):
        if not is_abandoned(lease, clock.now()):
            continue
        try:
            await store.write(lambda tx, session_id=lease.session_id: settle(tx, audit, session_id))
        except HoldfastError as error:
            if error.code not in (
                codes.SESSION_HELD,
                codes.UNKNOWN_SESSION,
            ):  # it was opened or deleted meanwhile
                log.warning("abandoned sessions not ended", extra={"reason": error.message})
                return


def settle(tx: Tx, audit: Audit, session_id: SessionId) -> None:
    """End what was cut off in a session, within a transaction; one that somebody works in is refused."""
    tx.hold(session_id)
    stored = tx.session(session_id)
    if stored is not None:
        audit.end_interrupted(tx, stored.context)
    tx.let_go(session_id)
