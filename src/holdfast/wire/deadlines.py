"""Which answers are overdue: one timer for all that are waited for."""

import asyncio
from collections.abc import Callable

from holdfast.wire.frame import Id


class Deadlines:
    """A timer for each answer would cost more than asking: most come long before their time."""

    __slots__ = ("_alarm", "_expire", "_loop", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[Id], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._until: dict[Id, float] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, identity: Id, seconds: float) -> None:
        """Have this one expire, unless it is dropped before."""
        until = self._until[identity] = self._loop.time() + seconds
        if self._alarm is None or until < self._alarm.when():
            self._set_alarm(until)

    def drop(self, identity: Id) -> None:
        """It has been answered. The alarm stays: the next one will want it."""
        self._until.pop(identity, None)

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._until.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._loop.time()
        for identity in [identity for identity, until in self._until.items() if until <= now]:
            del self._until[identity]
            self._expire(identity)
        if self._until:
            self._set_alarm(min(self._until.values()))
