"""When a lease expires, and the errors of a session that another process holds."""

from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store.clock import to_microseconds
from holdfast.store.owner import Owner, is_gone
from holdfast.store.rows import Lease, StoredSession

# An owner that cannot be checked is assumed to be alive for LEASE_SECONDS after its last renewal.
LEASE_SECONDS = 60.0
RENEW_SECONDS = 20.0
LEASE_MICROSECONDS = int(LEASE_SECONDS * 1_000_000)
_ASLEEP_MICROSECONDS = 24 * 3600 * 1_000_000


_ENDED: set[str] = set()
"""Holders of this process that were closed. Leases that they could not release, as on a full disk, have expired."""


def mark_closed(holder: str) -> None:
    """Note that the store with this holder id was closed, so that its leases have expired."""
    _ENDED.add(holder)


def is_expired(lease: Lease, now: int, gone: Callable[[Owner], bool | None] = is_gone) -> bool:
    """Whether the owner is dead, or, if that cannot be checked, whether the lease was not renewed in time."""
    dead = lease.holder in _ENDED or gone(lease.owner)
    return to_microseconds(lease.expires_at) <= now if dead is None else dead


def is_abandoned(lease: Lease, now: int, gone: Callable[[Owner], bool | None] = is_gone) -> bool:
    """Whether the owner is certainly dead. One that cannot be checked may be suspended: then wait another day."""
    dead = lease.holder in _ENDED or gone(lease.owner)
    return to_microseconds(lease.expires_at) + _ASLEEP_MICROSECONDS <= now if dead is None else dead


def is_interrupted(session: StoredSession, now: int) -> bool:
    """Whether the session has an open turn and no live owner."""
    return bool(session.open_turn) and (session.lease is None or is_expired(session.lease, now))


def check_free(lease: Lease, now: int) -> None:
    """Raise `SESSION_HELD` if a live owner holds the session."""
    if not is_expired(lease, now):
        raise session_held(lease)


def lease_lost(session_id: SessionId) -> HoldfastError:
    """The error for a store whose lease expired and was acquired by another process."""
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
