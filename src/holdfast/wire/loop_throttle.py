"""Limit how much of the event loop's time each owner may use, and all owners together."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import TypeVar

from holdfast.wire.lines import LongLines

T = TypeVar("T")
BURST_SECONDS = 0.01
"""How much work a session's servers may cause at once before reading pauses."""
_SHARE_DIVISOR = 3  # one owner may use a third of the event loop's time
_TOTAL_DIVISOR = 2  # all owners that exceed their share may together use half of it
_SLICE_SECONDS = 0.001  # how much work may be done before a pause
_MAX_DEBT_SECONDS = 0.003  # an owner that must pause for longer than this begins no new work
_MAX_PAUSE_SECONDS = 1.0  # the longest pause of an owner with the usual share
_MAX_WORK_SECONDS = 0.02  # the most that is charged for a piece of work that may include waiting
_BUSY_SECONDS = 0.1  # how long an owner counts as busy after a pause

_busy: dict["LoopThrottle", float] = {}  # the owners that had to pause, and until when they count as busy


class LoopThrottle:
    """Charges an owner for the time that its work takes, and says when to pause, so that the owner gets only its share.

    An owner is a session, or a caller of a server. All its connections and streams share one throttle and take turns. The
    more owners exceed their share, the smaller the shares get. An owner that needs little never waits.

    After each piece of work, call `charge_since`; if it returns True, await `pause` or use `call_in_turn`. Before a piece of work,
    do the same if `must_wait` returns True: another connection may have used the share. An owner that was idle can do
    `burst_seconds` of work before a pause takes longer than one iteration of the event loop.
    """

    __slots__ = (
        "_credit",
        "_is_turn_scheduled",
        "_since_pause",
        "_waiting",
        "free_at",
        "long_lines",
        "owner",
    )

    def __init__(self, owner: str = "", *, burst_seconds: float = 0.0) -> None:
        self.owner = owner
        """The owner's name. Threads that parse long messages are limited per owner."""
        self.long_lines = LongLines()
        """The memory for the long lines of the owner's connections."""
        self._credit = (_SHARE_DIVISOR - 1) * burst_seconds
        self.free_at = 0.0
        """When the owner will be within its share again (`monotonic`). Until then, `must_wait` may return True."""
        self._since_pause = 0.0  # seconds of work since the last pause
        self._waiting: deque[Callable[[], None]] | None = None  # created when needed: most owners never wait
        self._is_turn_scheduled = False

    def charge_since(self, started: float, *, may_wait: bool = False) -> bool:
        """Charge the owner for work from this time (`monotonic`) until now. Return whether to pause now.

        With `may_wait`, the time may include waiting. Then at most `_MAX_WORK_SECONDS` are charged.
        """
        now = monotonic()
        seconds = now - started
        return self.charge(_MAX_WORK_SECONDS if may_wait and seconds > _MAX_WORK_SECONDS else seconds, now)

    def charge(self, seconds: float, now: float | None = None) -> bool:
        """Charge the owner for work that took this long. Return whether to pause now."""
        now = monotonic() if now is None else now
        divisor = _share_divisor(now) if _busy else _SHARE_DIVISOR
        free_at = now - seconds - self._credit
        free_at = max(free_at, self.free_at)
        free_at += divisor * seconds
        if free_at > now + _MAX_PAUSE_SECONDS:
            free_at = min(free_at, now + _MAX_PAUSE_SECONDS * divisor / _SHARE_DIVISOR)
        self.free_at = free_at
        self._since_pause += seconds
        return self._since_pause > _SLICE_SECONDS

    def must_wait(self, now: float) -> bool:
        """Whether new work must wait: other work of this owner waits already, or the owner is far over its share."""
        return bool(self._waiting) or self.free_at > now + _MAX_DEBT_SECONDS

    def begin_pause(self) -> float:
        """Begin a pause. Return how many seconds it must last; 0 if one iteration of the event loop is enough."""
        self._since_pause = 0.0
        now = monotonic()
        if self.free_at <= now:
            return 0.0
        _busy.pop(self, None)
        _busy[self] = self.free_at + _BUSY_SECONDS
        return self.free_at - now

    def call_in_turn(self, function: Callable[[], None], *, first: bool = False) -> None:
        """Call the function after a pause and after the functions that wait already; with `first`, before these functions."""
        if self._waiting is None:
            self._waiting = deque()
        if first:
            self._waiting.appendleft(function)
        else:
            self._waiting.append(function)
        if not self._is_turn_scheduled:
            self._schedule_turn()

    async def pause(self) -> None:
        """Wait until the owner is within its share again, and until its other waiting work has had a turn."""
        turn = asyncio.get_running_loop().create_future()
        self.call_in_turn(lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _schedule_turn(self) -> None:
        self._is_turn_scheduled = True
        loop = asyncio.get_running_loop()
        if seconds := self.begin_pause():
            loop.call_later(seconds, self._give_turn)
        else:
            loop.call_soon(self._give_turn)

    def _give_turn(self) -> None:
        """Call the next waiting function. Its work is charged before the next turn."""
        if self.free_at > monotonic():
            self._schedule_turn()
            return
        assert self._waiting
        try:
            self._waiting.popleft()()
        finally:
            self._is_turn_scheduled = False
            if self._waiting:
                self._schedule_turn()


def _share_divisor(now: float) -> int:
    """How many equal parts the event loop's time has; each owner may use one. It depends on how many owners are busy."""
    while _busy and next(iter(_busy.values())) < now:
        del _busy[next(iter(_busy))]
    return max(_SHARE_DIVISOR, _TOTAL_DIVISOR * len(_busy))


def finish(steps: Generator[None, None, T]) -> T:
    """Do work that consists of steps, all at once, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def finish_in_slices(steps: Generator[None, None, T], throttle: LoopThrottle | None = None) -> T:
    """Do work like `finish`, but sleep for a millisecond after every millisecond of work, and for longer if `throttle` says so.

    `asyncio.sleep(0)` would let other tasks run, but keep the GIL: the store's writer thread, which every session waits
    for, would get it only after 5 ms.
    """
    while True:
        if throttle is not None and throttle.must_wait(monotonic()):
            await throttle.pause()
        started = monotonic()
        try:
            while monotonic() < started + _SLICE_SECONDS:
                next(steps)
        except StopIteration as end:
            return end.value
        finally:
            if throttle is not None:
                throttle.charge_since(started)
        await asyncio.sleep(_SLICE_SECONDS)
