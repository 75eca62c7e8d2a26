"""A turn that has no end, in words: somebody works on it, or it was interrupted."""

from holdfast.store import clock
from holdfast.store.lease import is_interrupted
from holdfast.store.rows import StoredSession


def open_turn(stored: StoredSession) -> str:
    """What there is to say about the session's last turn; nothing when it ended."""
    if not stored.open_turn:
        return ""
    if stored.lease is None or is_interrupted(stored, clock.now()):
        return "was interrupted"
    return f"is running in {stored.lease.owner}"
