"""Limits how many unknown session ids a connection may request, so that ids cannot be guessed."""

import time
from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

BURST = 20
REFILL_SECONDS = 3.0


class UnknownIdLimit:
    """A token bucket: allows BURST unknown ids at once, then one every REFILL_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._refilled_at = clock()

    def acquire(self) -> None:
        """Take a token before an id is looked up. Raise BUSY if there is none."""
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._refilled_at) / REFILL_SECONDS)
        self._refilled_at = now
        if self._tokens < 1:
            raise HoldfastError(
                codes.BUSY,
                f"Too many unknown sessions were requested. Try again in {REFILL_SECONDS:g} seconds.",
                hint="Wait a few seconds, then try again.",
            )
        self._tokens -= 1

    def refund(self) -> None:
        """Return the token. Call this if the session exists, or if the look-up itself failed."""
        self._tokens += 1
