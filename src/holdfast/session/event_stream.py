"""One session's events on their way to the store, and from there to a listener."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event
from holdfast.model.ids import SessionId
from holdfast.store.appender import OnAppend, PendingEvent
from holdfast.store.store import Store

log = logging.getLogger(__name__)

Listener = Callable[[Event], Awaitable[None]]
"""Gets each event once it is durable.

A listener that raises `HoldfastError` gets no further events. Any other exception is logged, and the next event follows.
"""
BatchListener = Callable[[Sequence[Event]], Awaitable[None]]
"""Like `Listener`, but gets events that became durable together in one call."""
_WINDOW = 1024
"""How many events may be in flight, to the disk and to the listener together."""


class EventStream:
    """Appends events in order. The listener gets each event once it is on disk, and none that could not be stored."""

    def __init__(self, session_id: SessionId, store: Store) -> None:
        self._appender = store.appender(session_id, window=_WINDOW)
        self._listener: BatchListener | None = None
        self._unpublished: deque[tuple[PendingEvent, Event]] = deque()
        self._deferred: list[Event] = []
        self._in_flight = 0
        self._has_space = asyncio.Event()
        self._has_space.set()
        self._publisher: asyncio.Task[None] | None = None

    @property
    def broken(self) -> HoldfastError | None:
        """Why an event was not stored; until `recover`, no later event is stored either."""
        return self._appender.error

    async def recover(self) -> None:
        """Wait for the events in flight, then accept events again."""
        await self._appender.wait_settled()
        self._appender.reset()

    def listen(self, listener: Listener) -> None:
        """Publish every event from now on, in order, once it is durable. A slow listener slows `append` down."""

        async def each(events: Sequence[Event]) -> None:
            for event in events:
                try:
                    await listener(event)
                except HoldfastError:
                    raise
                except Exception:
                    log.exception("event not published", extra={"event": type(event).__name__})

        self.listen_in_batches(each)

    def listen_in_batches(self, listener: BatchListener) -> None:
        """Like `listen`, but events that became durable together are published together."""
        self._listener = listener

    def publish_deferred(self, event: Event) -> None:
        """Publish an event whose write was deferred, now that the store has written it; events in flight come after it."""
        if self._listener is not None:
            self._deferred.append(event)
            self._start_publisher(self._listener)

    async def append(
        self, event: Event, on_append: OnAppend | None = None, *, depends_on: PendingEvent | None = None
    ) -> PendingEvent:
        """Append an event; waits only while too many are in flight."""
        if (broken := self._appender.error) is not None:
            raise broken
        if self._listener is None:
            return await self._appender.append(event, on_append=on_append, depends_on=depends_on)
        while self._in_flight >= _WINDOW:
            self._has_space.clear()
            await self._has_space.wait()
        self._in_flight += 1
        try:
            pending = await self._appender.append(event, on_append=on_append, depends_on=depends_on)
        except BaseException:
            self._release(1)
            raise
        self._unpublished.append((pending, event))
        self._start_publisher(self._listener)
        return pending

    def _start_publisher(self, listener: BatchListener) -> None:
        if self._publisher is None:
            self._publisher = asyncio.create_task(self._publish(listener))

    async def wait_published(self) -> None:
        """Wait until every event so far is durable and published."""
        while self._publisher is not None:
            await asyncio.shield(self._publisher)
        await self._appender.flush()

    async def _publish(self, listener: BatchListener) -> None:
        unpublished = self._unpublished
        try:
            while unpublished or self._deferred:
                if self._deferred:
                    deferred, self._deferred = self._deferred, []
                    await _notify(listener, deferred)
                    continue
                if not await unpublished[0][0].wait_settled():
                    self._skip_failed()
                    continue
                durable: list[tuple[PendingEvent, Event]] = []
                while unpublished and unpublished[0][0].is_durable and not self._deferred:
                    durable.append(unpublished.popleft())
                try:
                    # An event that was stored before, such as the end of a call, was published then.
                    await _notify(listener, [event for pending, event in durable if pending.is_new])
                finally:
                    self._release(len(durable))
        except HoldfastError as error:
            # The listener takes no more events: its client has disconnected, for example. Events are still stored.
            log.warning("events are no longer published", extra={"reason": error.message})
            self._listener = None
            self._release(len(unpublished))
            unpublished.clear()
        finally:
            self._publisher = None

    def _skip_failed(self) -> None:
        count = 0
        while self._unpublished and self._unpublished[0][0].has_failed:
            self._unpublished.popleft()
            count += 1
        self._release(count)
        log.warning("events neither stored nor published", extra={"count": count})

    def _release(self, count: int) -> None:
        self._in_flight -= count
        self._has_space.set()


async def _notify(listener: BatchListener, events: Sequence[Event]) -> None:
    """Call the listener. If it raises, call it for each event alone, so that only bad ones are lost."""
    if not events:
        return
    try:
        await listener(events)
    except HoldfastError:
        raise
    except Exception:
        if len(events) == 1:
            log.exception("event not published", extra={"event": type(events[0]).__name__})
            return
        for event in events:
            await _notify(listener, [event])
