"""Limit how often one sandbox may make the host's event loop work for it."""

import asyncio
from time import monotonic

_SLICE_SECONDS = 0.004  # how long to wait if there is no turn left, so that one timer serves several turns


class Pace:
    """Gives out turns in the order in which they were asked for: `burst` at once, and `per_second` in the long run."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._seconds = 1 / per_second
        self._burst_seconds = burst / per_second
        self._due = 0.0
        self._order = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for a turn."""
        async with self._order:
            now = monotonic()
            self._due = max(self._due, now - self._burst_seconds) + self._seconds
            if self._due > now:
                await asyncio.sleep(self._due - now + _SLICE_SECONDS)
