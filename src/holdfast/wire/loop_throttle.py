"""Limit how much of the event loop's time each owner, and all owners together, may use."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator
from time import monotonic
from typing import TypeVar
from weakref import WeakValueDictionary

from holdfast.wire.message_memory import LongLineMemory
from holdfast.wire.task_turns import TaskTurns

T = TypeVar("T")
BURST_SECONDS = 0.01
"""The usual `burst_seconds` of a `LoopThrottle`."""
_SHARE_DIVISOR = 3  # an owner may use a third of the event loop's time
_TOTAL_DIVISOR = 2  # all owners that exceed their share may together use half of the event loop's time
_SLICE_SECONDS = 0.001  # how long an owner works between two pauses
_MAX_DEBT_SECONDS = 0.003  # an owner that must pause for longer begins no new work
_MAX_PAUSE_SECONDS = 1.0  # the longest pause of an owner with the usual share
_MAX_WORK_SECONDS = 0.02  # the most that is charged for a piece of work that may include waiting
_BUSY_SECONDS = 0.1  # how long an owner counts as busy after a pause

_busy: dict["LoopThrottle", float] = {}
"""The throttles of owners that had to pause, and until when each counts as busy."""


class LoopThrottle:
    """Charges an owner for the time of its work on the event loop, and says when the owner must pause.

    An owner is a session, all sessions of one credential, or a caller of a server. All connections and streams of an owner
    share one throttle and take turns. The more owners exceed their share, the smaller the shares get. An owner that needs little time never waits.

    Before a piece of work, check `must_wait`: another connection of the owner may have used the share. After the work,
    call `charge_since`. If either returns True, await `pause` or use `call_in_turn`. An owner that was idle can do
    `burst_seconds` of work before a pause takes longer than one iteration of the event loop.
    """

    __slots__ = (
        "__weakref__",
        "_credit",
        "_is_turn_scheduled",
        "_since_pause",
        "_task_turns",
        "_waiting",
        "free_at",
        "long_line_memory",
        "owner",
    )

    def __init__(self, owner: str = "", *, burst_seconds: float = 0.0) -> None:
        self.owner = owner
        """The owner's name. It is also the owner in the quotas of threads, connections and writes."""
        self.long_line_memory = LongLineMemory()
        """Limits the memory of the long lines of the owner's connections."""
        # Work of n seconds usually moves `free_at` forward by 3n seconds. When it ends, n of these have passed; the credit is for 2n.
        self._credit = (_SHARE_DIVISOR - 1) * burst_seconds
        self.free_at = 0.0
        """The time (`monotonic`) from which the owner is within its share again. Before this time, `must_wait` may return True."""
        self._since_pause = 0.0  # seconds of work since the last pause
        # In the order of their turns. Created when needed: most owners never wait.
        self._waiting: OrderedDict[Callable[[], None], None] | None = None
        self._is_turn_scheduled = False
        self._task_turns: TaskTurns | None = None  # created when needed

    @property
    def task_turns(self) -> TaskTurns:
        """The turns of the tasks that answer the owner's requests."""
        if self._task_turns is None:
            self._task_turns = TaskTurns()
        return self._task_turns

    def charge_since(self, started: float, *, includes_waiting: bool = False) -> bool:
        """Charge the owner for work from this time (`monotonic`) until now. Return whether to pause now.

        With `includes_waiting`, the owner may have waited during a part of this time. Then at most `_MAX_WORK_SECONDS` are charged.
        """
        now = monotonic()
        seconds = now - started
        return self.charge(
            _MAX_WORK_SECONDS if includes_waiting and seconds > _MAX_WORK_SECONDS else seconds, now
        )

    def charge(self, seconds: float, now: float | None = None) -> bool:
        """Charge the owner for work that took this long. Return whether to pause now."""
        now = monotonic() if now is None else now
        divisor = _share_divisor(now) if _busy else _SHARE_DIVISOR
        # The credit lets an owner that was idle do a burst of work without a pause.
        free_at = max(now - seconds - self._credit, self.free_at) + divisor * seconds
        # One long piece of work must not cause a pause of many seconds.
        if free_at > now + _MAX_PAUSE_SECONDS:
            free_at = min(free_at, now + _MAX_PAUSE_SECONDS * divisor / _SHARE_DIVISOR)
        self.free_at = free_at
        self._since_pause += seconds
        return self._since_pause > _SLICE_SECONDS

    def must_wait(self, now: float) -> bool:
        """Whether new work must wait, because other work of this owner waits already or the owner is far over its share."""
        return bool(self._waiting) or self.free_at > now + _MAX_DEBT_SECONDS

    def begin_pause(self) -> float:
        """Begin a pause. Return how many seconds it must last; 0 if one iteration of the event loop is enough."""
        self._since_pause = 0.0
        now = monotonic()
        if self.free_at <= now:
            return 0.0
        # Move the throttle to the end, because `_share_divisor` removes throttles from the front.
        _busy.pop(self, None)
        _busy[self] = self.free_at + _BUSY_SECONDS
        return self.free_at - now

    def call_in_turn(self, function: Callable[[], None], *, first: bool = False) -> None:
        """Call the function after a pause. With `first`, it is called before the functions that wait already, else after them."""
        if self._waiting is None:
            self._waiting = OrderedDict()
        self._waiting[function] = None
        if first:
            self._waiting.move_to_end(function, last=False)
        if not self._is_turn_scheduled:
            self._schedule_turn()

    def forget_turn(self, function: Callable[[], None]) -> None:
        """Do not call this function any more. Otherwise its connection would stay in memory until its turn."""
        if self._waiting is not None:
            self._waiting.pop(function, None)

    async def pause(self) -> None:
        """Wait until the owner is within its share again, and until its other waiting work has had a turn."""
        turn = asyncio.get_running_loop().create_future()

        def end_pause() -> None:
            if not turn.done():
                turn.set_result(None)

        self.call_in_turn(end_pause)
        try:
            await turn
        finally:
            self.forget_turn(end_pause)

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
        try:
            if self._waiting:  # otherwise all were forgotten
                function, _ = self._waiting.popitem(last=False)
                function()
        finally:
            self._is_turn_scheduled = False
            if self._waiting:
                self._schedule_turn()


class Throttles:
    """The throttles of a host's quota owners: all sessions with one owner share one throttle, for as long as one of them is open."""

    def __init__(self) -> None:
        self._by_owner: WeakValueDictionary[str, LoopThrottle] = WeakValueDictionary()

    def of(self, owner: str) -> LoopThrottle:
        """The throttle of this owner. An owner that has none gets a new one."""
        throttle = self._by_owner.get(owner)
        if throttle is None:
            throttle = self._by_owner[owner] = LoopThrottle(owner, burst_seconds=BURST_SECONDS)
        return throttle


def _share_divisor(now: float) -> int:
    """The number of equal parts that the event loop's time is divided into. Each owner may use one part."""
    while _busy and next(iter(_busy.values())) < now:
        del _busy[next(iter(_busy))]
    return max(_SHARE_DIVISOR, _TOTAL_DIVISOR * len(_busy))


def run_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end without a pause, and return its result. Each `yield` ends a step of its work."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def run_steps_in_slices(steps: Generator[None, None, T], throttle: LoopThrottle | None = None) -> T:
    """Like `run_steps`, but sleep for a millisecond after every millisecond of work, and longer if `throttle` requires it.

    `asyncio.sleep(0)` would let other tasks run, but this thread would keep the GIL. The store's writer thread, which every
    session waits for, would get the GIL only after 5 ms.
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
