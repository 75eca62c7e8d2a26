"""The limits of an HTTP server, and the quota that enforces a limit per caller."""

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one `HttpApp` or gateway. The limits per caller apply only if the service can tell callers apart."""

    body_bytes: int = 4 * _MIB
    body_seconds: float = 20.0
    """How long a client may take to send a whole body."""
    refused_body_seconds: float = 1.0
    """How long the body of a refused request is read and discarded. Many clients read the answer only after they have sent the body."""
    body_memory: int = 128 * _MIB
    """The total size of the bodies in memory: those that are being read, and those whose requests are being answered."""
    body_memory_per_caller: int = 32 * _MIB
    kept_memory: int = 128 * _MIB
    """The total size of what the gateway keeps for clients after their requests: waiting requests, questions, unread notifications, events
    for resumption, watched resources."""
    kept_memory_per_caller: int = 32 * _MIB
    in_flight: int = 1024
    """Requests from all clients that are being answered at the same time."""
    in_flight_per_caller: int = 256
    sessions: int = 10_000
    """Open sessions of handshake-era clients."""
    sessions_per_caller: int = 64
    client_info_bytes: int = 4096
    """The most bytes of JSON that a client may report about itself in `initialize`."""
    idle_seconds: float = 3600.0
    """A session that is not used for this long expires."""
    unused_seconds: float = 60.0
    """A session that is never used after `initialize` expires after this time. It is ended earlier if there are too many sessions."""
    keepalive_seconds: float = 15.0
    """A silent stream gets a comment at this interval, so that proxies do not close it."""


DEFAULT_HTTP_LIMITS = HttpLimits()


class CallerQuota:
    """Limits what callers hold at the same time: `total` for all callers together, `share` for one caller.

    If a server cannot tell callers apart, the `caller_id` is `""`, and only `total` applies.
    """

    def __init__(self, *, total: int, share: int) -> None:
        self.total = total
        self.share = min(share, total)
        self.used = 0
        self._by_caller: dict[str, int] = {}

    def would_exceed_share(self, caller_id: str, amount: int = 1) -> bool:
        """Whether this caller would hold more than its share with this amount."""
        return bool(caller_id) and self._by_caller.get(caller_id, 0) + amount > self.share

    def try_acquire(self, caller_id: str, amount: int = 1) -> bool:
        """Count an amount as held by this caller. Return False if that would exceed the share or the total."""
        if self.used + amount > self.total:
            return False
        if caller_id:
            held = self._by_caller.get(caller_id, 0) + amount
            if held > self.share:
                return False
            self._by_caller[caller_id] = held
        self.used += amount
        return True

    def release(self, caller_id: str, amount: int = 1) -> None:
        """Count an amount as no longer held by this caller."""
        self.used -= amount
        if caller_id:
            held = self._by_caller.get(caller_id, 0) - amount
            if held:
                self._by_caller[caller_id] = held
            else:
                self._by_caller.pop(caller_id, None)
