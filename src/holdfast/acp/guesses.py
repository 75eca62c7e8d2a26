"""How often one connection may ask for sessions that there are not: ids cannot be tried out."""

import time
from collections.abc import Callable

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MOST = 20
SECONDS = 3.0


class Guesses:
    """A few wrong ids at once, and one more every few seconds; past that, nothing is looked up any more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(MOST)
        self._at = clock()

    def take(self) -> None:
        """Before an id is looked up. One that is found is given back."""
        now = self._clock()
        self._left = min(MOST, self._left + (now - self._at) / SECONDS)
        self._at = now
        if self._left < 1:
            raise HoldfastError(
                codes.BUSY,
                f"Too many unknown sessions were asked for; ask again in {SECONDS:g} seconds.",
                hint="Wait a few seconds, then ask again.",
            )
        self._left -= 1

    def give_back(self) -> None:
        """There was such a session, or it was not looked for."""
        self._left += 1
