"""A stream of events into one session that does not wait for each commit."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any

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
OnStored = Callable[[list[StoredEvent], list[int]], object]
"""Called with the new events of each commit, in order, and their sizes. An event that was there before is left out."""
Write = Callable[[Callable[["Tx"], Any]], Awaitable[Any]]


class PendingEvent:
    """A queued event. It is settled when it is durable or has failed."""

    __slots__ = ("_appended", "_error", "_waiter")

    def __init__(self) -> None:
        self._appended: AppendResult | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

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
    def error(self) -> Exception | None:
        """Why the event could not be stored."""
        return self._error

    async def wait_durable(self) -> int:
        """Wait until the event is on the disk, and return its number. Raises if it failed."""
        if self._appended is None and self._error is None:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)
        if self._appended is None:
            raise self._error or AssertionError("A settled event has a number or an error.")
        return self._appended.seq

    async def wait_settled(self) -> bool:
        """Wait until the event is durable or has failed, and return whether it is durable."""
        if self._appended is None:
            with suppress(Exception):  # `error` keeps the reason
                await self.wait_durable()
        return self.is_durable

    def settle(self, result: AppendResult | Exception) -> None:
        """Set the result or the error, and wake the waiting tasks."""
        if isinstance(result, AppendResult):
            self._appended = result
        else:
            self._error = result
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(slots=True)
class _QueuedEvent:
    event: Event
    key: str | None
    on_append: OnAppend | None
    origin: Origin
    size: int
    pending: PendingEvent = field(default_factory=PendingEvent)


class Appender:
    """Queues events and commits them in batches, in order.

    If an event cannot be stored, it and all later events fail until `reset` is called; earlier events are
    kept. Leaving the `async with` block waits for every event; without one, call `flush`.
    """

    def __init__(
        self, write: Write, hold: Hold, *, window: int, mask: Mask, on_stored: OnStored | None = None
    ) -> None:
        if window < 1:
            raise HoldfastError(codes.BAD_ARGUMENT, f"The window must be at least 1, not {window}.")
        self._write = write
        self._hold = hold
        self._mask = mask
        self._on_stored = on_stored
        self._slots = asyncio.Semaphore(window)
        # Half of the window is filled while the other half is being committed.
        self._batch_size = max(1, window // 2)
        self._queue: deque[_QueuedEvent] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    @property
    def error(self) -> HoldfastError | None:
        """The error of an event that could not be stored, until `reset` is called."""
        return None if self._error is None else self._after_failure(self._error)

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
        """Queue an event; waits only while the window is full. `size` is passed on to `on_stored`.

        `on_append` runs in the event's transaction, unless an event with its key was already there. If the event
        `depends_on` has failed, this one fails too, even after a `reset`.
        """
        await self._slots.acquire()
        entry = _QueuedEvent(mask_event(event, self._mask), key, on_append, origin, size)
        error = self._error or (depends_on.error if depends_on is not None else None)
        if error is not None:
            self._settle(entry, self._after_failure(error))
        else:
            self._queue.append(entry)
            self._start_committer()
        return entry.pending

    async def flush(self) -> None:
        """Wait until every queued event is durable. Raises if one failed."""
        await self.wait_settled()
        if self._error is not None:
            raise self._after_failure(self._error)

    async def wait_settled(self) -> None:
        """Wait until every queued event is durable or has failed."""
        while self._committer is not None:
            await asyncio.shield(self._committer)

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
        elif self._committer is not None:
            await asyncio.shield(self._committer)

    def _start_committer(self) -> None:
        if self._committer is None and self._queue:
            self._committer = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._queue and self._error is None:
                batch = [self._queue.popleft() for _ in range(min(self._batch_size, len(self._queue)))]
                await self._commit(batch)
        finally:
            self._committer = None
            while self._error is not None and self._queue:
                self._settle(self._queue.popleft(), self._after_failure(self._error))

    async def _commit(self, entries: list[_QueuedEvent], *, one_by_one: bool = False) -> None:
        """Commit the entries in one transaction. If one cannot be appended, commit those before it and fail the others.

        `append_many` does not say which event failed; then the entries are appended again, one by one.
        """
        stored_count = 0

        def append_all(tx: "Tx") -> list[AppendResult]:
            nonlocal stored_count
            stored_count = 0
            appended: list[AppendResult] = []
            for entry in entries:
                appended.append(_append(tx, self._hold, entry))
                stored_count += 1
            return appended

        together = not one_by_one and len(entries) > 1 and all(map(_can_batch, entries))
        batches = [
            (origin, [entry.event for entry in batch])
            for origin, batch in groupby(entries if together else (), key=_origin)
        ]

        def append_batches(tx: "Tx") -> list[AppendResult]:
            return [one for origin, events in batches for one in tx.append_many(self._hold, events, origin)]

        try:
            results = await self._write(append_batches if together else append_all)
        except asyncio.CancelledError:
            # Only closing the event loop cancels this task. It is unknown whether the entries were stored.
            self._error = HoldfastError(codes.CANCELLED, "The stream was cancelled.")
            self._fail(entries, self._error)
            raise
        except Exception as error:
            if together:
                await self._commit(entries, one_by_one=True)
                return
            # If the commit itself failed, after all appends, the first entry gets the error.
            split = stored_count if stored_count < len(entries) else 0
            good, bad = entries[:split], entries[split:]
            if good:
                await self._commit(good, one_by_one=True)
            if self._error is None:
                self._error = error
                self._settle(bad[0], error)
                bad = bad[1:]
            self._fail(bad, self._error)
            return
        if self._on_stored is not None:
            _report_stored(self._on_stored, entries, results)
        for entry, result in zip(entries, results, strict=True):
            self._settle(entry, result)

    def _fail(self, entries: list[_QueuedEvent], reason: Exception) -> None:
        for entry in entries:
            self._settle(entry, self._after_failure(reason))

    def _settle(self, entry: _QueuedEvent, result: AppendResult | Exception) -> None:
        entry.pending.settle(result)
        self._slots.release()

    def _after_failure(self, reason: Exception) -> HoldfastError:
        # Keep the code of an error after which a retry may succeed, such as a full disk.
        code = codes.STREAM_BROKEN
        if isinstance(reason, HoldfastError) and reason.code.retryable:
            code = reason.code
        return HoldfastError(
            code,
            f"An earlier event of {self._hold.session_id} could not be stored, so this one was not stored either: {reason}",
            session_id=self._hold.session_id,
        )


def _append(tx: "Tx", hold: Hold, entry: _QueuedEvent) -> AppendResult:
    appended = tx.append(hold, entry.event, entry.key, entry.origin)
    if appended.is_new and entry.on_append is not None:
        entry.on_append(tx)
    return appended


def _report_stored(on_stored: OnStored, entries: list[_QueuedEvent], results: list[AppendResult]) -> None:
    events: list[StoredEvent] = []
    sizes: list[int] = []
    for entry, result in zip(entries, results, strict=True):
        if result.is_new:
            origin = entry.origin
            events.append(
                StoredEvent(
                    seq=result.seq,
                    microseconds=result.microseconds,
                    event=entry.event,
                    key=entry.key or default_key(entry.event),
                    agent=origin.agent,
                    parent_call=origin.parent_call,
                    cause=origin.cause,
                )
            )
            sizes.append(entry.size)
    on_stored(events, sizes)


def _origin(entry: _QueuedEvent) -> Origin:
    return entry.origin


def _can_batch(entry: _QueuedEvent) -> bool:
    return (
        entry.key is None and entry.on_append is None and isinstance(entry.event, EVENTS_WITHOUT_PROJECTION)
    )
