"""Writes the events of an open session, and ends what a failed write interrupted."""

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from holdfast.audit.audit import Audit
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import MAIN_AGENT_ORIGIN, Event, Origin, Outcome, ToolCalled, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.storage_quota import StorageQuota
from holdfast.session.subscription import EventFeed
from holdfast.store.end_interrupted import missing_ends
from holdfast.store.pending_event import OnAppend, PendingEvent
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import Hold

SHORT_EVENT_BYTES = 200
"""The approximate size of an event without text."""
_WINDOW = 1024
"""How many events may be waiting to be stored."""
_RESULT_NOT_STORED: tuple[JsonObject, ...] = (
    {"type": "text", "text": "The result could not be stored when it arrived, and was not kept."},
)


@dataclass(slots=True)
class EventWrite:
    """An event to store, and a callback that writes something else in the same commit."""

    event: Event
    on_append: OnAppend | None
    origin: Origin = MAIN_AGENT_ORIGIN
    size: int = SHORT_EVENT_BYTES


class EventWriter:
    """Writes the events of one session. The caller masks them first."""

    def __init__(
        self,
        context: SessionContext,
        hold: Hold,
        store: Store,
        audit: Audit,
        feed: EventFeed,
        *,
        quota_owner: str,
    ) -> None:
        """`quota_owner`: see `Scope.quota_owner`."""
        self.context = context
        self.hold = hold
        self.store = store
        self.audit = audit
        self._feed = feed
        # Without a mask: each event is masked once, so that the published event equals the stored one.
        self.appender = store.appender(hold, window=_WINDOW, mask=None, feed=feed, quota_owner=quota_owner)
        self._quota = StorageQuota(0)
        self.running_calls: dict[str, PendingEvent] = {}
        """The `ToolCalled` event of each running call, by the call's id."""
        self._turns = 0  # how many are running: 0 or 1
        self._is_interrupted = False
        """Whether turns and calls may lack their ends, because an event could not be stored. `recover` writes the ends."""
        self._is_closed = False
        self._recovery_lock = asyncio.Lock()

    def limit_storage(self, max_megabytes: int, used_before: int) -> None:
        """See `Record.limit_storage`."""
        self._quota = StorageQuota(max_megabytes, used_before)

    def check_open(self) -> None:
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")

    def check_quota(self) -> None:
        """Raise if the session has stored as much as it may."""
        self._quota.check(self.appender.bytes)

    async def queue(
        self,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        depends_on: PendingEvent | None = None,
        origin: Origin = MAIN_AGENT_ORIGIN,
        size: int = SHORT_EVENT_BYTES,
    ) -> PendingEvent:
        """Append an event without waiting for the disk. `size` is its approximate number of bytes."""
        if self.appender.is_broken():
            raise self.appender.error or AssertionError("A broken appender has an error.")
        return await self.appender.append(
            event, on_append=on_append, depends_on=depends_on, origin=origin, size=size
        )

    async def write_durably(self, write: EventWrite) -> None:
        """Append an event and wait until it is durable."""
        pending = await self.queue(write.event, write.on_append, origin=write.origin, size=write.size)
        await pending.wait_durable()

    async def write_or_postpone(self, write: EventWrite) -> None:
        """Append an event and wait until it is durable. If that fails, postpone the write and raise."""
        try:
            await self.recover()
            await self.write_durably(write)
        except HoldfastError:
            await self.postpone(write)
            raise

    async def postpone(self, write: EventWrite) -> None:
        """Let the store write this event as soon as it can."""
        postponed = replace(write, event=_without_result(write.event))
        last_seq = 0

        def write_postponed(tx: Tx) -> None:
            nonlocal last_seq
            last_seq = self._write_in(tx, [postponed])

        def publish() -> None:
            self._feed.advance(last_seq)

        with suppress(HoldfastError):
            await self.store.write(write_postponed, must_happen=True, on_postponed_done=publish)
            publish()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Mark a turn as running: if one of its events cannot be stored, the later ones are not stored either."""
        await self.recover()
        self._turns += 1
        try:
            yield
        finally:
            self._turns = max(0, self._turns - 1)  # `close` may have set it to 0

    def is_broken(self) -> bool:
        """Whether an event could not be stored, and `recover` has not succeeded since."""
        return self._is_interrupted or self.appender.is_broken()

    async def recover(self) -> None:
        """Accept events again after a failed write. Interrupted turns and calls are ended first, as after a crash.

        Raise if the turn that lost an event is still running.
        """
        if not self.is_broken():
            return
        await run_to_completion(self._recover())  # a cancelled caller must not leave the recovery half done

    async def _recover(self) -> None:
        async with self._recovery_lock:
            if (broken := self.appender.error) is not None:
                if self._turns:
                    raise broken  # the running turn has lost an event
                self._is_interrupted = True
                await self.appender.wait_settled()
                self.appender.reset()
            if self._is_interrupted:
                running = set(self.running_calls)  # a copy: the read runs in another thread
                for write in await self.store.read(lambda tx: self._missing_end_writes(tx, running)):
                    await self.write_durably(write)
                self._is_interrupted = False

    async def close(self, writes: list[EventWrite]) -> None:
        """Store the last events. Nothing is written after them.

        If they cannot be stored now, raise, and let the store write them later.
        """
        self._is_closed = True
        if self._turns:
            self._turns, self._is_interrupted = 0, True  # so that `recover` ends the running turn
        try:
            await self.recover()
            queued = [
                await self.queue(write.event, write.on_append, origin=write.origin, size=write.size)
                for write in writes
            ]
            for event in queued:
                await event.wait_durable()
                del writes[0]  # `writes` keeps those that the store must write later if this fails
        except HoldfastError:
            with suppress(HoldfastError):
                await self.store.write(
                    lambda tx: self._write_in(tx, [*self._missing_end_writes(tx, set()), *writes]),
                    must_happen=True,
                )
            raise

    def _missing_end_writes(self, tx: ReadTx, running: Set[str]) -> list[EventWrite]:
        """The ends to write for turns and calls that have none and are not running.

        If a postponed write also has one of these ends, the store keeps only one, because both have the same event key.
        """
        return [
            EventWrite(end.event, self._audit_interrupted_callback(end.call), end.origin)
            for end in missing_ends(tx, self.context.session_id)
            if end.call is None or end.call.call_id not in running
        ]

    def _audit_interrupted_callback(self, call: ToolCalled | None) -> OnAppend | None:
        return None if call is None else lambda tx: self.audit.append_interrupted(tx, self.context, call)

    def _write_in(self, tx: Tx, writes: Sequence[EventWrite]) -> int:
        last_seq = 0
        for write in writes:
            appended = tx.append(self.hold, write.event, origin=write.origin)
            last_seq = max(last_seq, appended.seq)
            if appended.is_new and write.on_append is not None:
                write.on_append(tx)
        return last_seq


def _without_result(event: Event) -> Event:
    """The event without the tool's result, which may be what did not fit on the disk."""
    if isinstance(event, ToolEnded) and event.outcome is not Outcome.REFUSED:
        return ToolEnded(
            call_id=event.call_id, outcome=event.outcome, content=_RESULT_NOT_STORED, code=event.code
        )
    return event
