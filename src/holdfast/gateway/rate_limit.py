"""Rate limits, with a token bucket for each credential."""

from collections.abc import Callable
from time import monotonic

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_MAX_OWNERS = 4096


class RateLimit:
    """A token bucket for each owner: on average `per_period` uses in `seconds`, with bursts of up to `per_period`."""

    def __init__(
        self, what: str, per_period: int, seconds: float, *, clock: Callable[[], float] = monotonic
    ) -> None:
        """`what` names the uses in error messages, such as `requests`."""
        self._what = what
        self._burst = per_period
        self._seconds = seconds
        self._interval = seconds / per_period
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """When the bucket of each owner is full again, least recently used first."""

    def take(self, owner: str) -> None:
        """Count one use; raises RATE_LIMITED if the owner's bucket is empty."""
        now = self._clock()
        full_at = max(self._full_at.pop(owner, now), now)
        if full_at + self._interval > now + self._seconds:
            self._full_at[owner] = full_at
            raise HoldfastError(
                codes.RATE_LIMITED,
                f"This credential exceeds its limit of {self._burst} {self._what} in {self._seconds:g} s. Wait, then try again.",
            )
        self._full_at[owner] = full_at + self._interval
        if len(self._full_at) > _MAX_OWNERS:
            del self._full_at[next(iter(self._full_at))]
