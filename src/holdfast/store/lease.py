"""When a lease expires, and the errors for a session that another process holds."""

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.owner import Owner, is_dead, this_process
from holdfast.store.types import Hold, Lease, StoredSession

LEASE_SECONDS = 60.0
"""An owner that cannot be checked is assumed to be alive for this long after its last renewal."""
RENEWALS = 3
"""How often a lease is renewed before it would expire."""
# An owner that cannot be checked may be suspended (Ctrl-Z) and continue later. So its open calls are ended only after a day.
_MAX_SUSPENSION = timedelta(days=1)
# No lease lasts this long, so a later expiry means that the clock was set back.
_MAX_LEASE = timedelta(days=1)
_closed_holder_ids: set[str] = set()
"""The holder ids of the stores that this process has closed. Leases that they did not release count as expired."""


def mark_closed(holder_id: str) -> None:
    """Treat the leases of the store with this holder id as expired, because it was closed."""
    _closed_holder_ids.add(holder_id)


def is_expired(lease: Lease, now: datetime, is_dead: Callable[[Owner], bool | None] = is_dead) -> bool:
    """Whether another holder may acquire the session.

    True if the owner is dead, if this process has closed the owner's store, or if the owner cannot be checked and did not renew
    the lease in time.
    """
    dead = lease.holder_id in _closed_holder_ids or is_dead(lease.owner)
    return _is_out_of_time(lease, now, grace=timedelta()) if dead is None else dead


def is_abandoned(lease: Lease, now: datetime, is_dead: Callable[[Owner], bool | None] = is_dead) -> bool:
    """Whether the session's open calls may be ended: as `is_expired`, but an owner that cannot be checked has a day longer."""
    dead = lease.holder_id in _closed_holder_ids or is_dead(lease.owner)
    return _is_out_of_time(lease, now, grace=_MAX_SUSPENSION) if dead is None else dead


def _is_out_of_time(lease: Lease, now: datetime, *, grace: timedelta) -> bool:
    """Whether the lease expired at least `grace` ago, or the clock was set back."""
    return lease.expires_at + grace <= now or lease.expires_at > now + _MAX_LEASE


def is_held(session: StoredSession) -> bool:
    """Whether the session had a live owner when it was read."""
    return session.lease is not None and not is_expired(session.lease, session.read_at)


def is_interrupted(session: StoredSession) -> bool:
    """Whether the session had an open turn and no live owner when it was read."""
    return bool(session.open_turn) and not is_held(session)


def check_free(lease: Lease, now: datetime) -> None:
    """Raise SESSION_HELD if a live owner holds the session."""
    if not is_expired(lease, now):
        raise session_held(lease)


def check_epoch(hold: Hold, current: int | None) -> None:
    """Raise SESSION_HELD unless the hold is still valid. `current` is the epoch of the session's hold; None if it has none."""
    if hold.epoch != current:
        raise HoldfastError(
            codes.SESSION_HELD,
            f"The session {hold.session_id} is no longer held by this writer: it was released, or "
            "acquired again. Nothing was written. Open the session again.",
            session_id=hold.session_id,
        )


def session_held(lease: Lease) -> HoldfastError:
    """The error that names the live owner of a session."""
    where = str(lease.owner)
    if lease.owner == this_process():
        where = "another host of this application: use that host, or close the session there"
    return HoldfastError(
        codes.SESSION_HELD,
        f"The session {lease.session_id} is open in {where}.",
        session_id=lease.session_id,
        pid=lease.owner.pid,
        machine=lease.owner.machine.partition("/")[0],
    )
