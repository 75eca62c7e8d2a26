"""When a lease expires, and the errors for a session that another process holds."""

from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store.clock import to_microseconds
from holdfast.store.owner import Owner, is_dead
from holdfast.store.types import Lease, StoredSession

# An owner that cannot be checked is assumed to be alive for LEASE_SECONDS after its last renewal.
LEASE_SECONDS = 60.0
RENEW_SECONDS = 20.0
LEASE_MICROSECONDS = int(LEASE_SECONDS * 1_000_000)
# Its calls are ended only a day after its lease expired: until then it may only be suspended.
_SUSPENDED_MICROSECONDS = 24 * 3600 * 1_000_000
_closed_holders: set[str] = set()
"""The holder ids of this process's closed stores. Leases that they could not release, as on a full disk, have expired."""


def mark_closed(holder: str) -> None:
    """Treat the leases of the store with this holder id as expired: the store was closed."""
    _closed_holders.add(holder)


def is_expired(lease: Lease, now: int, is_dead: Callable[[Owner], bool | None] = is_dead) -> bool:
    """Whether the owner is dead, or, if that cannot be checked, whether the lease was not renewed in time."""
    dead = lease.holder in _closed_holders or is_dead(lease.owner)
    return _is_out_of_time(lease, now, grace=0) if dead is None else dead


def is_abandoned(lease: Lease, now: int, is_dead: Callable[[Owner], bool | None] = is_dead) -> bool:
    """Whether the owner is dead. One that cannot be checked counts as dead a day after its lease expired."""
    dead = lease.holder in _closed_holders or is_dead(lease.owner)
    return _is_out_of_time(lease, now, grace=_SUSPENDED_MICROSECONDS) if dead is None else dead


def _is_out_of_time(lease: Lease, now: int, *, grace: int) -> bool:
    """Whether the lease ended `grace` ago, or ends so far ahead that the clock was set back after its last renewal."""
    ends = to_microseconds(lease.expires_at)
    return ends + grace <= now or ends > now + _SUSPENDED_MICROSECONDS


def is_interrupted(session: StoredSession, now: int) -> bool:
    """Whether the session has an open turn and no live owner."""
    return bool(session.open_turn) and (session.lease is None or is_expired(session.lease, now))


def check_free(lease: Lease, now: int) -> None:
    """Raise `SESSION_HELD` if a live owner holds the session."""
    if not is_expired(lease, now):
        raise session_held(lease)


def lease_lost(session_id: SessionId) -> HoldfastError:
    """The error for a store that lost its lease: another process acquired it."""
    return HoldfastError(
        codes.SESSION_HELD,
        f"The session {session_id} is no longer held by this process: another process acquired it. Open it again.",
        session_id=session_id,
    )


def session_held(lease: Lease) -> HoldfastError:
    """The error that names the live owner of a session."""
    return HoldfastError(
        codes.SESSION_HELD,
        f"The session {lease.session_id} is held by {lease.owner}.",
        session_id=lease.session_id,
        pid=lease.owner.pid,
        machine=lease.owner.machine.partition("/")[0],
    )
