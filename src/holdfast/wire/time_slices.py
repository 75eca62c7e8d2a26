"""Limit how much of the event loop's time one link may use."""

import asyncio
from time import monotonic

_SHARE = 3  # the work of one link takes at most a third of the time
_SLICE_SECONDS = 0.001  # how much work is done without a pause
_MAX_SECONDS = 0.02  # a piece of work that took longer was waiting for something


class TimeSlices:
    """Counts the work of a link, and pauses it when it has used more than its share of the event loop's time.

    All streams of a link share one. After each piece of work, call `count`; if it returns True, await `rest`.
    """

    __slots__ = ("_free_at",)

    def __init__(self) -> None:
        self._free_at = 0.0  # when the work done so far will have used no more than its share

    def count(self, started: float) -> bool:
        """Count a piece of work that started at this time (`monotonic`). Whether the link must rest now."""
        now = monotonic()
        took = min(now - started, _MAX_SECONDS)
        self._free_at = max(self._free_at, now - took) + _SHARE * took
        return self._free_at - now > (_SHARE - 1) * _SLICE_SECONDS

    async def rest(self) -> None:
        """Wait until the work has used no more than its share of the time."""
        while (seconds := self._free_at - monotonic()) > 0:  # noqa: ASYNC110 - other streams may add to it
            await asyncio.sleep(seconds)
