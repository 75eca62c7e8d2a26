"""The deadlines of pending requests, with a single timer for all of them."""

import asyncio
from collections.abc import Callable
from contextvars import Context

from holdfast.wire.messages import Id


class Deadlines:
    """Calls `on_expire` for each request that is not answered in time. One timer costs less than one per request."""

    __slots__ = ("_expires_at", "_loop", "_on_expire", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expire: Callable[[Id], None]) -> None:
        self._loop = loop
        self._on_expire = on_expire
        self._expires_at: dict[Id, float] = {}
        # The time of `_timer`. It is stored because a timer does not always have `when()`: uvloop returns a plain handle
        # if the time has already passed.
        self._timer_at = 0.0
        self._timer: asyncio.Handle | None = None

    def add(self, request_id: Id, seconds: float) -> None:
        """Call `on_expire` with this id after `seconds`, unless the request is removed first."""
        expires_at = self._expires_at[request_id] = self._loop.time() + seconds
        if self._timer is None or expires_at < self._timer_at:
            self._set_timer(expires_at)

    def remove(self, request_id: Id) -> None:
        """Remove an answered request. The timer is kept: the next request probably needs it."""
        self._expires_at.pop(request_id, None)

    def close(self) -> None:
        """Remove all deadlines and stop the timer."""
        self._expires_at.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, expires_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = expires_at
        # In an empty context: the timer would keep the current context, and with it the current request, in memory.
        self._timer = self._loop.call_at(expires_at, self._expire_overdue, context=Context())

    def _expire_overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        overdue = [request_id for request_id, expires_at in self._expires_at.items() if expires_at <= now]
        for request_id in sorted(overdue, key=self._expires_at.__getitem__):
            del self._expires_at[request_id]
            self._on_expire(request_id)
        if self._expires_at:
            self._set_timer(min(self._expires_at.values()))
