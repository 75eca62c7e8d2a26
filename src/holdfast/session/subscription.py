"""The events of a live session for any number of subscribers, each at its own speed."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice, takewhile
from typing import Self

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Prompted
from holdfast.model.ids import SessionId
from holdfast.store.store import Store
from holdfast.store.types import StoredEvent

MAX_EVENTS = 4096
MAX_BYTES = 4 * 1024 * 1024
"""An `EventFeed` keeps at most this many events and bytes in memory."""
MAX_BATCH = 512  # events that `next_batch` returns at most
_BATCH_BYTES = 512 * 1024  # further events are left for the next batch
_STORE_BATCH = 256  # events that are read from the store at once
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0)
"""The pauses before a read of the store is repeated."""
_TRANSIENT = (codes.STORE_BUSY, codes.STORE_FAILED, codes.STORE_FULL, codes.STORE_UNREADABLE)
"""Errors after which a repeated read may succeed."""

log = logging.getLogger(__name__)


class EventFeed:
    """The newest events of a live session, in memory. Subscribers that need older ones read the store.

    The events in memory have consecutive numbers. After a gap, only the events after the gap are kept.
    """

    def __init__(
        self, session_id: SessionId, store: Store, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._max_events = max_events
        self._max_bytes = max_bytes
        # Created for the first subscription, because even an empty deque takes memory, and there may be hundreds of sessions.
        self._recent: deque[StoredEvent] | None = None
        self._sizes: deque[int] | None = None
        self._bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.last = 0
        """The number of the last event that is known to be stored."""
        self.is_closed = False
        self.subscription_count = 0
        """How many subscriptions are open. Without any, `advance` is enough, and no event has to be passed to `publish`."""

    def subscribe(self, after: int = 0) -> "Subscription":
        return Subscription(self, after)

    def publish(self, events: Sequence[StoredEvent], sizes: Sequence[int]) -> None:
        """Pass on events that have just been stored: in order, each with its size in bytes."""
        # After `advance`, subscribers read these events from the store.
        if not events or events[-1].seq <= self.last:
            return
        if events[0].seq != self.last + 1:
            self._forget_recent()
        if self._recent is None or self._sizes is None:
            self._recent, self._sizes = deque(), deque()
        self._recent.extend(events)
        self._sizes.extend(sizes)
        self._bytes += sum(sizes)
        self.last = events[-1].seq
        while len(self._recent) > self._max_events or self._bytes > self._max_bytes:
            self._recent.popleft()
            self._bytes -= self._sizes.popleft()
        self._wake()

    def advance(self, seq: int) -> None:
        """Note that the events up to this number are stored. Subscribers read them from the store."""
        if seq > self.last:
            if self._recent:
                self._forget_recent()
            self.last = seq
            if self._waiting:
                self._wake()

    def close(self) -> None:
        """End each subscription after the last event."""
        self.is_closed = True
        self._wake()

    def recent(self, after: int) -> Sequence[StoredEvent]:
        """The first events after this number, if they are in memory: at most `MAX_BATCH`, fewer if they are large."""
        count, recent, sizes = self.last - after, self._recent, self._sizes
        if recent is None or sizes is None or not 0 < count <= len(recent):
            return ()
        if self._bytes > _BATCH_BYTES:
            sums = accumulate(sizes[-index] for index in range(count, max(0, count - MAX_BATCH), -1))
            fitting = 1 + sum(1 for _ in takewhile(lambda total: total < _BATCH_BYTES, sums))
            return [recent[-index] for index in range(count, max(0, count - fitting), -1)]
        if count == len(recent):
            return [*islice(recent, MAX_BATCH)]
        # Indexed from the end, because most subscribers need only the newest events, and a deque is fast near its ends.
        return [recent[-index] for index in range(count, max(0, count - MAX_BATCH), -1)]

    async def read_stored(self, after: int) -> Sequence[StoredEvent]:
        """Some of the events after this number, from the store."""
        return await self._store.read(lambda tx: tx.events(self._session_id, after, _STORE_BATCH))

    def next_change(self) -> "asyncio.Future[None]":
        """A future that is done when an event is published or the feed is closed. Pass it to `forget` afterwards."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        return future

    def forget(self, future: "asyncio.Future[None]") -> None:
        self._waiting.discard(future)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def _forget_recent(self) -> None:
        self._recent = self._sizes = None
        self._bytes = 0


class Subscription:
    """A position in a session's events. One task reads from it; a slow reader delays only itself."""

    def __init__(self, feed: EventFeed, after: int = 0) -> None:
        self._feed = feed
        self.position = after
        """The number of the last event in the last batch."""
        self._handled = after
        self._unread: deque[StoredEvent] = deque()
        """What `__anext__` has not returned yet."""
        self._hidden_prompts: set[str] = set()
        self._until_handled: list[tuple[int, asyncio.Future[None]]] = []
        self._change: asyncio.Future[None] | None = None
        self._is_closed = False
        feed.subscription_count += 1

    def __del__(self) -> None:
        if not self._is_closed:  # the reader did not close it
            self._feed.subscription_count -= 1

    def __aiter__(self) -> Self:
        """Each event, in order, until the session is closed. After a loop was left early, another one continues."""
        return self

    async def __anext__(self) -> StoredEvent:
        if not self._unread:
            self._unread.extend(await self.next_batch())
        if not self._unread:
            raise StopAsyncIteration
        return self._unread.popleft()

    async def next_batch(self) -> Sequence[StoredEvent]:
        """Wait for the next events and return them; none once the session or the subscription is closed.

        A call means that the reader has handled the previous events.
        """
        while not self._is_closed:
            self._set_handled(self.position)
            batch = self._feed.recent(self.position)
            if not batch and self._feed.last > self.position:
                batch = await self._read_stored()
            if batch:
                self.position = batch[-1].seq
                if shown := self._without_hidden(batch):
                    return shown
            elif self._feed.is_closed:
                self.close()
            elif not self._is_closed:
                await self._wait_for_change()
        return ()

    async def wait_handled(self, seq: int) -> None:
        """Wait until the reader has handled every event up to this number, or until the subscription is closed."""
        if seq <= self._handled or self._is_closed:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._until_handled.append((seq, future))
        await future

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def hide_prompt(self, message_id: str) -> None:
        """Leave out the prompt with this id, because the reader sent it."""
        self._hidden_prompts.add(message_id)

    def close(self) -> None:
        """End the subscription."""
        if not self._is_closed:
            self._feed.subscription_count -= 1
        self._is_closed = True
        self._set_handled(None)
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _read_stored(self) -> Sequence[StoredEvent]:
        """Read the next events from the store. After a transient error, try again for a few seconds."""
        for seconds in RETRY_SECONDS:
            try:
                return await self._feed.read_stored(self.position)
            except HoldfastError as error:
                if error.code not in _TRANSIENT:
                    raise
                log.warning("events could not be read; trying again", extra={"reason": error.message})
            if not self._is_closed:
                await self._pause(seconds)
            if self._is_closed:
                return ()
        return await self._feed.read_stored(self.position)

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._change = change = loop.create_future()
        timer = loop.call_later(seconds, lambda: change.done() or change.set_result(None))
        try:
            await change
        finally:
            timer.cancel()
            self._change = None

    async def _wait_for_change(self) -> None:
        self._change = self._feed.next_change()
        try:
            await self._change
        finally:
            self._feed.forget(self._change)
            self._change = None

    def _set_handled(self, seq: int | None) -> None:
        """Wake the tasks that wait for events up to this number; with None, wake all of them."""
        if seq is not None:
            self._handled = seq
        if self._until_handled:
            waiting, self._until_handled = self._until_handled, []
            for wanted, future in waiting:
                if seq is not None and wanted > seq:
                    self._until_handled.append((wanted, future))
                elif not future.done():
                    future.set_result(None)

    def _without_hidden(self, batch: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        if not self._hidden_prompts:
            return batch
        shown: list[StoredEvent] = []
        for stored in batch:
            event = stored.event
            if isinstance(event, Prompted) and event.message_id in self._hidden_prompts:
                self._hidden_prompts.discard(event.message_id)
            else:
                shown.append(stored)
        return shown
