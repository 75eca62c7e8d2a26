"""Limit how much of the event loop's time one link may use."""

import asyncio
from time import monotonic

_SHARE = 3  # the work of one link takes at most a third of the time
_SLICE_SECONDS = 0.001  # how much work is done without a pause
_MAX_REST_SECONDS = 1.0
_MAX_UNSURE_SECONDS = 0.02  # a piece of work that may contain waiting, and took longer, did


class LoopThrottle:
    """Counts the work of a link, and pauses the link when it has used more than its share of the event loop's time.

    All streams of a link share one throttle. After each piece of work, call `count`; if it returns True, await `rest`.
    A link that did little for a while may do `burst_seconds` of work before it has to rest for longer than one turn
    of the event loop.
    """

    __slots__ = ("_credit", "_free_at", "_since_rest")

    def __init__(self, *, burst_seconds: float = 0.0) -> None:
        self._credit = (_SHARE - 1) * burst_seconds
        self._free_at = 0.0  # when the work done so far will have used no more than its share
        self._since_rest = 0.0

    def count(self, started: float, *, may_wait: bool = False) -> bool:
        """Count a piece of work that started at this time (`monotonic`). Whether the link must rest now.

        With `may_wait`, the piece may contain waiting, which is not counted.
        """
        now = monotonic()
        return self.add(min(now - started, _MAX_UNSURE_SECONDS) if may_wait else now - started, now)

    def add(self, seconds: float, now: float | None = None) -> bool:
        """Count work that took this long. Whether the link must rest now."""
        now = monotonic() if now is None else now
        self._free_at = max(self._free_at, now - seconds - self._credit) + _SHARE * seconds
        self._since_rest += seconds
        return self._since_rest > _SLICE_SECONDS

    def begin_rest(self) -> float:
        """How many seconds the link must rest from now on; 0 if one turn of the event loop is enough."""
        self._since_rest = 0.0
        return min(max(self._free_at - monotonic(), 0.0), _MAX_REST_SECONDS)

    async def rest(self) -> None:
        """Wait until the work has used no more than its share of the time."""
        await asyncio.sleep(self.begin_rest())
