"""Limit how much of the event loop's time each owner may use, and all owners together."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from holdfast.wire.lines import LongLines

BURST_SECONDS = 0.01
"""How much work may arrive for a session at once before reading pauses."""
_SHARE_DIVISOR = 3  # one owner may use a third of the event loop's time
_TOTAL_DIVISOR = 2  # all owners that exceed their share may together use half of it
_SLICE_SECONDS = 0.001  # how much work may be done before a rest
_MAX_DEBT_SECONDS = 0.003  # with more debt, no new work is begun
_MAX_REST_SECONDS = 1.0  # for an owner with the usual share
_MAX_WORK_SECONDS = 0.02  # the most that is counted for a piece of work that may contain waiting
_BUSY_SECONDS = 0.1  # how long an owner counts as busy after a rest

_busy: dict["LoopThrottle", float] = {}  # the owners that had to rest, and until when they count


class LoopThrottle:
    """Counts the work for an owner, and tells when to rest, so that it takes only its share of the event loop's time.

    An owner is a session, or a caller of a server. All its connections and streams share one throttle and take turns. The
    more owners exceed their share, the smaller it gets; an owner that needs little never waits.

    After each piece of work, call `count`; if it returns True, await `rest` or use `call_in_turn`. Before a piece of work,
    do the same if `must_wait` returns True: another connection may have used the share. After a quiet time,
    `burst_seconds` of work are possible before a rest takes longer than one iteration of the event loop.
    """

    __slots__ = (
        "_credit",
        "_is_turn_scheduled",
        "_since_rest",
        "_waiting",
        "free_at",
        "long_lines",
        "owner",
    )

    def __init__(self, owner: str = "", *, burst_seconds: float = 0.0) -> None:
        self.owner = owner
        """The owner of the threads that parse long messages."""
        self.long_lines = LongLines()
        """The memory for the long lines of the owner's connections."""
        self._credit = (_SHARE_DIVISOR - 1) * burst_seconds
        self.free_at = 0.0
        """When the work so far will be no more than its share of the time (`monotonic`). Before, `must_wait` may be True."""
        self._since_rest = 0.0  # seconds of work since the last rest
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_turn_scheduled = False

    def count(self, started: float, *, may_wait: bool = False) -> bool:
        """Count a piece of work that started at this time (`monotonic`). Return whether to rest now.

        With `may_wait`, the piece may contain waiting. Then at most `_MAX_WORK_SECONDS` are counted.
        """
        now = monotonic()
        seconds = now - started
        return self.add(_MAX_WORK_SECONDS if may_wait and seconds > _MAX_WORK_SECONDS else seconds, now)

    def add(self, seconds: float, now: float | None = None) -> bool:
        """Count work that took this long. Return whether to rest now."""
        now = monotonic() if now is None else now
        divisor = _share_divisor(now) if _busy else _SHARE_DIVISOR
        free_at = now - seconds - self._credit
        free_at = max(free_at, self.free_at)
        free_at += divisor * seconds
        if free_at > now + _MAX_REST_SECONDS:
            free_at = min(free_at, now + _MAX_REST_SECONDS * divisor / _SHARE_DIVISOR)
        self.free_at = free_at
        self._since_rest += seconds
        return self._since_rest > _SLICE_SECONDS

    def must_wait(self, now: float) -> bool:
        """Whether new work must wait: others of this owner wait already, or the owner has used much more than its share."""
        return bool(self._waiting) or self.free_at > now + _MAX_DEBT_SECONDS

    def begin_rest(self) -> float:
        """Return how many seconds to rest from now on; 0 if one iteration of the event loop is enough."""
        self._since_rest = 0.0
        now = monotonic()
        if self.free_at <= now:
            return 0.0
        _busy.pop(self, None)
        _busy[self] = self.free_at + _BUSY_SECONDS
        return self.free_at - now

    def call_in_turn(self, function: Callable[[], None], *, first: bool = False) -> None:
        """Call the function after the rest, and after those that wait already; with `first`, before them."""
        if first:
            self._waiting.appendleft(function)
        else:
            self._waiting.append(function)
        if not self._is_turn_scheduled:
            self._schedule_turn()

    async def rest(self) -> None:
        """Rest until the work so far has used no more than its share of the time, and those that wait had their turn."""
        turn = asyncio.get_running_loop().create_future()
        self.call_in_turn(lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _schedule_turn(self) -> None:
        self._is_turn_scheduled = True
        loop = asyncio.get_running_loop()
        if seconds := self.begin_rest():
            loop.call_later(seconds, self._give_turn)
        else:
            loop.call_soon(self._give_turn)

    def _give_turn(self) -> None:
        """Let one continue. What it does is counted before the next turn."""
        if self.free_at > monotonic():
            self._schedule_turn()
            return
        try:
            self._waiting.popleft()()
        finally:
            self._is_turn_scheduled = False
            if self._waiting:
                self._schedule_turn()


def _share_divisor(now: float) -> int:
    """The part of the event loop's time that each owner may use, as a divisor. It depends on how many are busy."""
    while _busy and next(iter(_busy.values())) < now:
        del _busy[next(iter(_busy))]
    return max(_SHARE_DIVISOR, _TOTAL_DIVISOR * len(_busy))
