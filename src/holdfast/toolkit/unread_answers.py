"""Limit the memory of the answers that the clients of one caller do not read."""

import asyncio
from time import monotonic
from typing import Protocol

from holdfast.wire.loop_throttle import LoopThrottle


class WritingConnection(Protocol):
    """A connection with an answer that its client does not read."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes wait until the client reads."""
        ...

    def abort(self) -> None:
        """Close the connection at once. It is removed from the unread answers."""
        ...


class UnreadAnswers:
    """The connections whose clients do not read an answer, by caller. A caller is identified by the throttle of its connections.

    If the unread answers of a caller have more than `max_bytes` together, the connections with the oldest answers are closed, each
    after its answer was unread for `seconds`.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        # The connections of each caller, with the time since when their answers are unread; the oldest is first.
        self._unread: dict[LoopThrottle, dict[WritingConnection, float]] = {}
        self._scheduled: set[LoopThrottle] = set()

    def add(self, connection: WritingConnection, caller: LoopThrottle) -> None:
        """Add a connection whose client does not read an answer."""
        self._unread.setdefault(caller, {})[connection] = monotonic()
        if caller not in self._scheduled:
            self._limit(caller)

    def remove(self, connection: WritingConnection, caller: LoopThrottle) -> None:
        """Remove a connection whose client has read the answer, or has disconnected."""
        unread = self._unread.get(caller, {})
        unread.pop(connection, None)
        if not unread:
            self._unread.pop(caller, None)

    def _limit(self, caller: LoopThrottle) -> None:
        self._scheduled.discard(caller)
        while unread := self._unread.get(caller):
            if sum(connection.unread_bytes for connection in unread) <= self._max_bytes:
                return
            oldest, since = next(iter(unread.items()))
            seconds = since + self._seconds - monotonic()
            if seconds > 0:
                self._scheduled.add(caller)
                asyncio.get_running_loop().call_later(seconds, self._limit, caller)
                return
            oldest.abort()
            self.remove(oldest, caller)
