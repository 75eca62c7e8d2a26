"""When a session that somebody holds is free again."""

from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store.clock import to_stored
from holdfast.store.owner import Owner, is_gone
from holdfast.store.rows import Lease, StoredSession

# How long a holder that cannot be seen from here is believed to be alive, and how often a live one says so.
LEASE_SECONDS = 60.0
RENEW_SECONDS = 20.0
LEASE_MICROSECONDS = int(LEASE_SECONDS * 1_000_000)
_ASLEEP_MICROSECONDS = 24 * 3600 * 1_000_000


_ENDED: set[str] = set()
"""The holders of this process that ended: what they could not let go of, on a full disk say, they do not hold."""


def ended(holder: str) -> None:
    """A store of this process was closed."""
    _ENDED.add(holder)


def has_lapsed(lease: Lease, now: int, gone: Callable[[Owner], bool | None] = is_gone) -> bool:
    """Whether the holder is dead; where that cannot be seen, whether it has been silent for too long."""
    dead = lease.holder in _ENDED or gone(lease.owner)
    return to_stored(lease.until) <= now if dead is None else dead


def is_abandoned(lease: Lease, now: int, gone: Callable[[Owner], bool | None] = is_gone) -> bool:
    """Whether the holder is dead beyond doubt: one that cannot be seen from here may only have been asleep."""
    dead = lease.holder in _ENDED or gone(lease.owner)
    return to_stored(lease.until) + _ASLEEP_MICROSECONDS <= now if dead is None else dead


def is_interrupted(session: StoredSession, now: int) -> bool:
    """Whether the session's open turn was cut off; one that a live owner holds runs."""
    return bool(session.open_turn) and (session.lease is None or has_lapsed(session.lease, now))


def check_free(lease: Lease, now: int) -> None:
    """Refuse when a live owner holds the session."""
    if not has_lapsed(lease, now):
        raise held_by_another(lease)


def lost(session_id: SessionId) -> HoldfastError:
    """The refusal for a holder that was silent for so long that another took the session."""
    return HoldfastError(
        codes.SESSION_HELD,
        f"The session {session_id} is not held by this process any more: another one took it meanwhile. Open it again.",
        session_id=session_id,
    )


def held_by_another(lease: Lease) -> HoldfastError:
    """The refusal, which names the owner."""
    return HoldfastError(
        codes.SESSION_HELD,
        f"The session {lease.session_id} is held by {lease.owner}.",
        session_id=lease.session_id,
        pid=lease.owner.pid,
        machine=lease.owner.machine.partition("/")[0],
    )
