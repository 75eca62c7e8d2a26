"""A stream of events into one session that does not wait for each commit."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import OWN_AGENT, Event, Origin
from holdfast.store.constraints import default_key
from holdfast.store.projection import EVENTS_WITHOUT_PROJECTION
from holdfast.store.types import AppendResult, Hold, StoredEvent

if TYPE_CHECKING:
    from holdfast.store.store import Tx

OnAppend = Callable[["Tx"], object]
Submit = Callable[[Callable[["Tx"], Any], Callable[[Any, BaseException | None], object]], None]
"""`Store.submit`: runs a function in a write transaction, and calls the second one with its result or its error."""


_MAX_SINGLE = 4  # up to this many events, one statement for all is not worth its preparation


class Feed(Protocol):
    """Gets the events of each commit, once they are stored."""

    @property
    def has_subscribers(self) -> bool:
        """Whether `publish` is to be called. If not, `advance` is."""
        ...

    def publish(self, events: Sequence[StoredEvent], sizes: Sequence[int]) -> None:
        """Receive the new events of a commit, in order, and their sizes. An event that was there before is left out."""
        ...

    def advance(self, seq: int) -> None:
        """Note that the events up to this number are stored."""
        ...


class PendingEvent:
    """A queued event. It is settled when it is durable or has failed."""

    __slots__ = (
        "_appended",
        "_appender",
        "_error",
        "_waiters",
        "event",
        "key",
        "on_append",
        "origin",
        "size",
    )

    def __init__(
        self,
        appender: "Appender",
        event: Event,
        key: str | None,
        on_append: OnAppend | None,
        origin: Origin,
        size: int,
    ) -> None:
        self.event = event
        self.key = key
        self.on_append = on_append
        self.origin = origin
        self.size = size
        self._appender = appender
        self._appended: AppendResult | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def result(self) -> AppendResult | None:
        """The number and time of the event, once it is durable."""
        return self._appended

    @property
    def is_durable(self) -> bool:
        """Whether the event is on the disk."""
        return self._appended is not None

    @property
    def is_new(self) -> bool:
        """Whether the event is on the disk, and was not there before."""
        return self._appended is not None and self._appended.is_new

    @property
    def has_failed(self) -> bool:
        """Whether the event could not be stored."""
        return self._error is not None

    @property
    def is_settled(self) -> bool:
        """Whether the event is durable or has failed."""
        return self._appended is not None or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """Why the event could not be stored."""
        return self._error

    async def wait_durable(self) -> int:
        """Wait until the event is on the disk, and return its number. Raises if it failed."""
        if self._appended is None:
            if self._error is None:
                await self._wait()
            if self._appended is None:
                raise self._error or AssertionError("A settled event has a number or an error.")
        return self._appended.seq

    async def wait_settled(self) -> bool:
        """Wait until the event is durable or has failed, and return whether it is durable."""
        if self._appended is None and self._error is None:
            await self._wait()
        return self._appended is not None

    async def wait_to_the_end(self) -> bool:
        """Like `wait_settled`, but a cancellation of the caller is raised only when the event is settled."""
        cancelled: asyncio.CancelledError | None = None
        while self._appended is None and self._error is None:
            try:
                await self._wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return self._appended is not None

    def settle(self, result: AppendResult | BaseException) -> None:
        """Set the result or the error, and wake the waiting tasks."""
        if isinstance(result, AppendResult):
            self._appended = result
        else:
            self._error = result
        if self._waiters is not None:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = None

    async def _wait(self) -> None:
        self._appender.commit_now()  # the caller waits for nothing else that could share the commit
        if self._appended is None and self._error is None:
            # Each caller has its own future, so that one that is cancelled does not affect the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = [waiter]
            else:
                self._waiters.append(waiter)
            await waiter


class Appender:
    """Queues events and commits them in batches, in order. While one batch is being committed, the next one fills up.

    A batch is committed when a caller waits for one of its events, or else in the next iteration of the event loop. If an
    event cannot be stored, it and all later events fail until `reset` is called; earlier events are kept. Leaving the
    `async with` block waits for every event; without one, call `flush`.
    """

    def __init__(
        self, submit: Submit, hold: Hold, *, window: int, mask: Mask | None, feed: Feed | None = None
    ) -> None:
        """`mask` is None if the caller masks the events."""
        if window < 1:
            raise HoldfastError(codes.BAD_ARGUMENT, f"The window must be at least 1, not {window}.")
        self._loop = asyncio.get_running_loop()
        self._submit = submit
        self._hold = hold
        self._mask = mask
        self._feed = feed
        self._free = window
        self._waiting: deque[asyncio.Future[None]] | None = None
        """The callers of `append` that wait for a free place in the window."""
        # Half of the window is filled while the other half is being committed.
        self._batch_size = max(1, window // 2)
        self._queue: list[PendingEvent] = []
        self._is_scheduled = False
        self._is_committing = False
        self._salvaging: asyncio.Task[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None

    @property
    def error(self) -> HoldfastError | None:
        """The error of an event that could not be stored, until `reset` is called."""
        return None if self._error is None else self._after_failure(self._error)

    @property
    def is_broken(self) -> bool:
        """Whether an event could not be stored, and `reset` was not called since."""
        return self._error is not None

    @property
    def can_append_now(self) -> bool:
        """Whether `append_now` may be called: the window is not full, and no event has failed."""
        return self._free > 0 and self._error is None

    async def append(
        self,
        event: Event,
        *,
        key: str | None = None,
        on_append: OnAppend | None = None,
        depends_on: PendingEvent | None = None,
        origin: Origin = OWN_AGENT,
        size: int = 0,
    ) -> PendingEvent:
        """Queue an event; waits only while the window is full. `size` is passed on to the feed.

        `on_append` runs in the event's transaction, unless an event with its key was already there. If the event
        `depends_on` has failed, this one fails too, even after a `reset`.
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_place()
        if self._mask is not None:
            event = mask_event(event, self._mask)
        pending = PendingEvent(self, event, key, on_append, origin, size)
        self._enqueue(pending, depends_on)
        return pending

    def append_now(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        depends_on: PendingEvent | None = None,
        size: int = 0,
        *,
        waits_for_next: bool = False,
    ) -> PendingEvent:
        """Queue a masked event without waiting. Call this only while `can_append_now`.

        If it `waits_for_next`, it is committed with the next event, or when a caller waits for it.
        """
        self._free -= 1
        pending = PendingEvent(self, event, None, on_append, OWN_AGENT, size)
        if waits_for_next and (depends_on is None or depends_on.error is None):
            self._queue.append(pending)
        else:
            self._enqueue(pending, depends_on)
        return pending

    def _enqueue(self, pending: PendingEvent, depends_on: PendingEvent | None) -> None:
        error = self._error or (depends_on.error if depends_on is not None else None)
        if error is not None:
            self._settle(pending, self._after_failure(error))
            return
        self._queue.append(pending)
        if not (self._is_committing or self._is_scheduled):
            self._is_scheduled = True
            self._loop.call_soon(self._commit_scheduled)

    async def flush(self) -> None:
        """Wait until every queued event is durable. Raises if one failed."""
        await self.wait_settled()
        if self._error is not None:
            raise self._after_failure(self._error)

    async def wait_settled(self) -> None:
        """Wait until every queued event is durable or has failed."""
        self.commit_now()
        while self._is_committing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def reset(self) -> None:
        """Accept events again after a failure. Failed events stay failed. Call this when all events are settled."""
        self._error = None

    async def __aenter__(self) -> "Appender":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()
        else:
            await self.wait_settled()

    def commit_now(self) -> None:
        """Commit the next events of the queue, unless a commit is running; then they are next."""
        queue = self._queue
        if self._is_committing or not queue:
            return
        self._is_committing = True
        batch = _Batch(self._hold, queue[: self._batch_size])
        del queue[: self._batch_size]
        try:
            self._submit(batch.append_to, partial(self._on_done, batch))
        except HoldfastError as error:  # the store is closed
            self._on_done(batch, [], error)

    def _on_done(self, batch: "_Batch", results: list[AppendResult], error: BaseException | None) -> None:
        if error is None:
            self._settle_all(batch.entries, results)
            self._continue()
        else:
            self._salvaging = asyncio.get_running_loop().create_task(self._salvage_and_continue(batch, error))

    def _continue(self) -> None:
        self._is_committing = False
        if self._error is not None:
            queue, self._queue = self._queue, []
            self._fail(queue, self._error)
        self.commit_now()
        if self._idle_waiters and not self._is_committing:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle_waiters.clear()

    def _commit_scheduled(self) -> None:
        self._is_scheduled = False
        self.commit_now()

    async def _salvage_and_continue(self, batch: "_Batch", error: BaseException) -> None:
        try:
            await self._salvage(batch, error)
        except asyncio.CancelledError:
            # Only closing the event loop cancels this task. It is unknown whether the entries were stored.
            self._error = HoldfastError(codes.CANCELLED, "The stream was cancelled.")
            self._fail([entry for entry in batch.entries if not entry.is_settled], self._error)
            raise
        finally:
            self._salvaging = None
            self._continue()

    async def _salvage(self, batch: "_Batch", error: BaseException) -> None:
        """Commit the events before the one that failed. Fail that one and those after it."""
        entries = batch.entries
        if batch.is_together:  # it is unknown which event failed
            await self._commit_separately(entries)
            return
        # If the commit itself failed, after all appends, the first entry gets the error.
        split = batch.stored_count if batch.stored_count < len(entries) else 0
        good, bad = entries[:split], entries[split:]
        if good:
            await self._commit_separately(good)
        if self._error is None:
            self._error = error
            self._settle(bad[0], error)
            bad = bad[1:]
        self._fail(bad, self._error)

    async def _commit_separately(self, entries: list[PendingEvent]) -> None:
        batch = _Batch(self._hold, entries, separately=True)
        done: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
        try:
            self._submit(batch.append_to, partial(resolve, done))
            results = await done
        except Exception as error:
            await self._salvage(batch, error)
        else:
            self._settle_all(entries, results)

    def _settle_all(self, entries: list[PendingEvent], results: list[AppendResult]) -> None:
        feed = self._feed
        if feed is not None:
            if feed.has_subscribers:
                _publish(feed, entries, results)
            else:
                last = results[-1]
                feed.advance(last.seq if last.is_new else max(result.seq for result in results))
        for entry, result in zip(entries, results, strict=True):
            entry.settle(result)
        self._free += len(entries)
        if self._waiting:
            self._give_places()

    def _fail(self, entries: list[PendingEvent], reason: BaseException) -> None:
        for entry in entries:
            self._settle(entry, self._after_failure(reason))

    def _settle(self, entry: PendingEvent, result: AppendResult | BaseException) -> None:
        entry.settle(result)
        self._free += 1
        if self._waiting:
            self._give_places()

    async def _wait_for_place(self) -> None:
        place: asyncio.Future[None] = self._loop.create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(place)
        try:
            await place  # `_give_places` has counted it
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._free += 1
                self._give_places()
            raise

    def _give_places(self) -> None:
        """Give the free places to those that wait, in order."""
        while self._waiting and self._free > 0:
            place = self._waiting.popleft()
            if not place.done():  # else its caller was cancelled
                self._free -= 1
                place.set_result(None)

    def _after_failure(self, reason: BaseException) -> HoldfastError:
        # Keep the code of an error after which a retry may succeed, such as a full disk.
        code = codes.STREAM_BROKEN
        if isinstance(reason, HoldfastError) and reason.code.retryable:
            code = reason.code
        return HoldfastError(
            code,
            f"An earlier event of {self._hold.session_id} could not be stored, so this one was not stored either: {reason}",
            session_id=self._hold.session_id,
        )


class _Batch:
    """Events that are appended in one transaction: with one statement if that is possible, unless `separately`."""

    __slots__ = ("_hold", "entries", "is_together", "stored_count")

    def __init__(self, hold: Hold, entries: list[PendingEvent], *, separately: bool = False) -> None:
        self._hold = hold
        self.entries = entries
        self.is_together = not separately and len(entries) > _MAX_SINGLE and all(map(_can_batch, entries))
        self.stored_count = 0
        """How many events were appended in the last run, if they were appended one by one."""

    def append_to(self, tx: "Tx") -> list[AppendResult]:
        """Append the events in this transaction."""
        if self.is_together:
            batches = groupby(self.entries, key=_origin)
            return [
                result
                for origin, entries in batches
                for result in tx.append_many(self._hold, [entry.event for entry in entries], origin)
            ]
        self.stored_count = 0
        results: list[AppendResult] = []
        for entry in self.entries:
            appended = tx.append(self._hold, entry.event, entry.key, entry.origin)
            if appended.is_new and entry.on_append is not None:
                entry.on_append(tx)
            results.append(appended)
            self.stored_count += 1
        return results


def resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Settle a future with a result or an error, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _publish(feed: Feed, entries: list[PendingEvent], results: list[AppendResult]) -> None:
    events: list[StoredEvent] = []
    sizes: list[int] = []
    for entry, result in zip(entries, results, strict=True):
        if result.is_new:
            origin = entry.origin
            events.append(
                StoredEvent(
                    seq=result.seq,
                    at_microseconds=result.at_microseconds,
                    event=entry.event,
                    key=entry.key or default_key(entry.event),
                    agent=origin.agent,
                    parent_call=origin.parent_call,
                    cause=origin.cause,
                )
            )
            sizes.append(entry.size)
    feed.publish(events, sizes)


def _origin(entry: PendingEvent) -> Origin:
    return entry.origin


def _can_batch(entry: PendingEvent) -> bool:
    event = entry.event
    return (
        entry.key is None
        and entry.on_append is None
        and isinstance(event, EVENTS_WITHOUT_PROJECTION)
        and default_key(event) is None
    )
