"""Appends events to one session without waiting for each commit."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.masking.events import mask_event
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import MAIN_AGENT_ORIGIN, Event, Origin
from holdfast.store.append_batch import AppendBatch, Feed, publish
from holdfast.store.pending_event import OnAppend, PendingEvent, settle_future
from holdfast.store.types import AppendResult, Hold

if TYPE_CHECKING:
    from holdfast.store.store import Tx

_MAX_BATCH_BYTES = 256 * 1024
"""The most bytes of a batch with more than one event."""


class Submit(Protocol):
    """`Store.submit`, with a quota owner: runs a function in a write transaction, and calls the other one with its result or its error."""

    def __call__(
        self,
        work: Callable[["Tx"], Any],
        on_done: Callable[[Any, BaseException | None], object],
        *,
        size: int,
    ) -> None: ...


class Appender:
    """Queues events and commits them in batches, in order. During a commit, the events for the next batch are queued.

    If no commit is running, one begins when a caller waits for an event, or else in the next iteration of the event loop. If an
    event cannot be stored, it and all later events fail until `reset` is called; earlier events are kept.

    The end of an `async with` block waits for every event.
    """

    def __init__(
        self, submit: Submit, hold: Hold, *, window: int, mask: Mask | None, feed: Feed | None = None
    ) -> None:
        """At most `window` events are queued and not yet durable. `mask` is None if the caller masks the events."""
        if window < 1:
            raise HoldfastError(codes.BAD_ARGUMENT, f"The window must be at least 1, not {window}.")
        self.loop = asyncio.get_running_loop()
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
        self._recovery: asyncio.Task[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self.bytes = 0
        """The size of all events of this appender. Until an event is stored, the size that the caller gave counts."""
        self.commits_at_once = False
        """Whether the store has committed the last batch before `submit` returned, as the store in memory does."""

    @property
    def error(self) -> HoldfastError | None:
        """The error that later events get after a failure; None if no event has failed since the last `reset`."""
        return None if self._error is None else self._error_for_later_event(self._error)

    def is_broken(self) -> bool:
        """Whether an event has failed since the last `reset`."""
        return self._error is not None

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
        origin: Origin = MAIN_AGENT_ORIGIN,
        size: int = 0,
    ) -> PendingEvent:
        """Queue an event. Waits only while the window is full. `size` is the approximate size of the event in bytes.

        `on_append` runs in the event's transaction, unless an event with the same key was stored before. If the event
        `depends_on` failed, this event fails too, even after a `reset`.
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_place()
        if self._mask is not None:
            event = mask_event(event, self._mask)
        pending = PendingEvent(self, event, key, on_append, origin, size)
        self.bytes += size
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
        origin: Origin = MAIN_AGENT_ORIGIN,
    ) -> PendingEvent:
        """Queue an event, which the caller has masked, without waiting. Call this only while `can_append_now()`.

        With `waits_for_next`, the event is committed with the next event, or when a caller waits for it.
        """
        self._free -= 1
        pending = PendingEvent(self, event, None, on_append, origin, size)
        self.bytes += size
        if waits_for_next and (depends_on is None or depends_on.error is None):
            self._queue.append(pending)
        else:
            self._enqueue(pending, depends_on)
        return pending

    def _enqueue(self, pending: PendingEvent, depends_on: PendingEvent | None) -> None:
        error = self._error or (depends_on.error if depends_on is not None else None)
        if error is not None:
            self._fail(pending, self._error_for_later_event(error))
            return
        self._queue.append(pending)
        if not (self._is_committing or self._is_scheduled):
            self._is_scheduled = True
            self.loop.call_soon(self._commit_scheduled)

    async def flush(self) -> None:
        """Wait until every queued event is durable. Raise if one failed."""
        await self.wait_settled()
        if self._error is not None:
            raise self._error_for_later_event(self._error)

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
        """Commit the next events of the queue, or do so when the running commit ends."""
        queue = self._queue
        if self._is_committing or not queue:
            return
        self._is_committing = True
        count, size = _next_batch(queue, self._batch_size)
        if count == len(queue):
            entries, self._queue = queue, []
        else:
            entries = queue[:count]
            del queue[:count]
        batch = AppendBatch(self._hold, entries)
        try:
            self._submit(batch.append_to, partial(self._on_done, batch), size=size)
        except HoldfastError as error:  # the store is closed
            self._on_done(batch, [], error)
        self.commits_at_once = not self._is_committing

    def _on_done(self, batch: AppendBatch, results: list[AppendResult], error: BaseException | None) -> None:
        if error is None:
            self._settle_all(batch.entries, results)
            self._continue()
        else:
            self._recovery = asyncio.get_running_loop().create_task(self._recover_and_continue(batch, error))

    def _continue(self) -> None:
        self._is_committing = False
        if self._error is not None:
            queue, self._queue = self._queue, []
            self._fail_all(queue, self._error)
        if self._queue:
            self.commit_now()
        if self._idle_waiters and not self._is_committing:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle_waiters.clear()

    def _commit_scheduled(self) -> None:
        self._is_scheduled = False
        self.commit_now()

    async def _recover_and_continue(self, batch: AppendBatch, error: BaseException) -> None:
        try:
            await self._recover(batch, error)
        except asyncio.CancelledError:
            # Only closing the event loop cancels this task. It is unknown whether the entries were stored.
            self._error = HoldfastError(codes.CANCELLED, "The commit was cancelled.")
            self._fail_all([entry for entry in batch.entries if not entry.is_settled], self._error)
            raise
        finally:
            self._recovery = None
            self._continue()

    async def _recover(self, batch: AppendBatch, error: BaseException) -> None:
        """Commit the events of a failed batch up to the one that cannot be stored. Fail that event and all later ones."""
        entries = batch.entries
        if batch.uses_append_many:  # it is unknown which event failed
            await self._commit_one_by_one(entries)
            return
        # If the commit itself failed, after all appends, the first entry gets the error.
        split = batch.stored_count if batch.stored_count < len(entries) else 0
        good, bad = entries[:split], entries[split:]
        if good:
            await self._commit_one_by_one(good)
        if self._error is None:
            self._error = error
            self._fail(bad[0], error)
            bad = bad[1:]
        self._fail_all(bad, self._error)

    async def _commit_one_by_one(self, entries: list[PendingEvent]) -> None:
        batch = AppendBatch(self._hold, entries, one_by_one=True)
        done: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
        try:
            self._submit(batch.append_to, partial(settle_future, done), size=_size_of(entries))
            results = await done
        except Exception as error:
            await self._recover(batch, error)
        else:
            self._settle_all(entries, results)

    def _settle_all(self, entries: list[PendingEvent], results: list[AppendResult]) -> None:
        feed = self._feed
        if feed is not None:
            if feed.subscription_count:
                publish(feed, entries, results)
            else:
                last = results[-1]
                # An event that was stored before has its old, lower number.
                feed.advance(last.seq if last.is_new else max(result.seq for result in results))
        for index, entry in enumerate(entries):  # faster than `zip` with `strict`
            result = results[index]
            entry.set_durable(result)
            self.bytes += result.size - entry.size
        self._free += len(entries)
        if self._waiting:
            self._grant_places()

    def _fail_all(self, entries: list[PendingEvent], reason: BaseException) -> None:
        for entry in entries:
            self._fail(entry, self._error_for_later_event(reason))

    def _fail(self, entry: PendingEvent, error: BaseException) -> None:
        entry.set_failed(error)
        self.bytes -= entry.size
        self._free += 1
        if self._waiting:
            self._grant_places()

    async def _wait_for_place(self) -> None:
        place: asyncio.Future[None] = self.loop.create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(place)
        try:
            await place  # `_grant_places` has already decreased `_free`
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._free += 1
                self._grant_places()
            raise

    def _grant_places(self) -> None:
        while self._waiting and self._free > 0:
            place = self._waiting.popleft()
            if not place.done():  # it is done if its caller was cancelled
                self._free -= 1
                place.set_result(None)

    def _error_for_later_event(self, reason: BaseException) -> HoldfastError:
        # Keep the code of an error after which a retry may succeed, such as a full disk.
        code = codes.STREAM_BROKEN
        if isinstance(reason, HoldfastError) and reason.code.retryable:
            code = reason.code
        return HoldfastError(
            code,
            f"An earlier event of {self._hold.session_id} could not be stored, so this event was not stored either: {reason}",
            session_id=self._hold.session_id,
        )


def _next_batch(queue: Sequence[PendingEvent], max_events: int) -> tuple[int, int]:
    """How many of the first events are committed together, and their size: at most `_MAX_BATCH_BYTES`, but at least one event."""
    count, size = 1, queue[0].size
    for pending in queue[1:max_events]:
        if size + pending.size > _MAX_BATCH_BYTES:
            break
        count += 1
        size += pending.size
    return count, size


def _size_of(entries: Sequence[PendingEvent]) -> int:
    return sum(entry.size for entry in entries)
