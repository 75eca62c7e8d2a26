"""The store's interface: functions that read or write, each in one transaction."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, ToolCalled
from holdfast.model.ids import SessionId
from holdfast.model.mask import Mask
from holdfast.store.appender import Appender
from holdfast.store.query import SearchQuery, SessionQuery
from holdfast.store.types import (
    AppendResult,
    Approval,
    AuditRow,
    Lease,
    NewSession,
    Page,
    SearchHit,
    SessionChange,
    StoredEvent,
    StoredSession,
)

T = TypeVar("T")
_BATCH_SIZE = 1000


class ReadTx(Protocol):
    """A read transaction: everything it returns is from one snapshot."""

    def session(self, session_id: SessionId) -> StoredSession | None:
        """The session, or None if there is none with this id."""
        ...

    def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        """One page of the sessions that match the query."""
        ...

    def search(self, query: SearchQuery) -> Page[SearchHit]:
        """One page of the messages and titles that contain all of the words."""
        ...

    def events(
        self, session_id: SessionId, after: int = 0, limit: int = _BATCH_SIZE
    ) -> tuple[StoredEvent, ...]:
        """The events after number `after`, oldest first."""
        ...

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        """The session's latest resolution: its servers and its refusals."""
        ...

    def open_calls(self, session_id: SessionId) -> tuple[ToolCalled, ...]:
        """The session's calls without an end, oldest first."""
        ...

    def lease(self, session_id: SessionId) -> Lease | None:
        """The session's lease; its owner may be dead."""
        ...

    def approvals(self, prefix: str = "") -> tuple[Approval, ...]:
        """The approvals whose key starts with this prefix."""
        ...

    def store_id(self) -> bytes:
        """The random id of this store."""
        ...

    def audit_head(self) -> AuditRow | None:
        """The last row of the audit."""
        ...

    def audit_row(self, seq: int) -> AuditRow | None:
        """The row of the audit with this number."""
        ...

    def audit_rows(self, after: int = 0, session_id: SessionId | None = None) -> Iterator[AuditRow]:
        """The rows of the audit after number `after`, of one session or of all."""
        ...


class Tx(ReadTx, Protocol):
    """A write transaction: everything one function writes is committed, or nothing."""

    def create(self, new: NewSession) -> StoredSession:
        """Store a new session. It is safe to repeat this after a crash."""
        ...

    def change(self, session_id: SessionId, change: SessionChange) -> StoredSession:
        """Change fields of the session without an event."""
        ...

    def delete(self, session_id: SessionId) -> bool:
        """Delete a session and its events, but not its audit records. False if there was none."""
        ...

    def append(self, session_id: SessionId, event: Event, key: str | None = None) -> AppendResult:
        """Append an event to the session, unless it has one with the same key."""
        ...

    def append_many(self, session_id: SessionId, events: Sequence[Event]) -> list[AppendResult]:
        """Append events that do not change the session's row (`projection.EVENTS_WITHOUT_PROJECTION`), in order."""
        ...

    def index_messages(self) -> None:
        """Add all messages that are not indexed yet to the search index."""
        ...

    def acquire(self, session_id: SessionId) -> Lease:
        """Acquire the session's lease, or raise an error that names its owner."""
        ...

    def release(self, session_id: SessionId) -> None:
        """Release the session's lease, if this store holds it."""
        ...

    def approve(self, approval: Approval) -> None:
        """Store an approval."""
        ...

    def remove_approvals(self, prefix: str) -> None:
        """Remove the approvals whose key starts with this prefix."""
        ...

    def audit_append(self, row: AuditRow) -> None:
        """Append a row to the audit; its number must be the next one."""
        ...


# Runs after a commit, in the writer thread. Returns the seconds after which to run it again, or None.
AfterCommit = Callable[[ReadTx], float | None]


class Store(ABC):
    """Stores sessions, their events and the audit. Subclasses implement the four abstract methods."""

    @abstractmethod
    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a function in a write transaction. When this returns, its writes are durable.

        The function runs once, in the store's writer thread, and must not block. A caller that is cancelled
        cannot know whether the write took place, so use keys to make it safe to repeat.
        """

    @abstractmethod
    async def read(self, work: Callable[[ReadTx], T]) -> T:
        """Run a function in a read transaction, in another thread. Writes do not block it."""

    @abstractmethod
    def after_commit(self, hook: AfterCommit) -> None:
        """Run this hook after every commit from now on."""

    @abstractmethod
    async def close(self) -> None:
        """Finish pending reads and writes, release all leases and close the files."""

    def defer(self, work: Callable[[Tx], object], on_done: Callable[[], object] | None = None) -> None:
        """Repeat a write that failed, as soon as possible and before any other write; then call `on_done`.

        Only stores whose writes can fail temporarily, as on a full disk, need to implement this.
        """
        raise HoldfastError(codes.STORE_FAILED, f"{type(self).__name__} cannot defer writes.")

    @property
    def deferred_writes(self) -> int:
        """The number of deferred writes that are waiting."""
        return 0

    async def create(self, new: NewSession) -> StoredSession:
        """Store a new session."""
        return await self.write(lambda tx: tx.create(new))

    async def append(self, session_id: SessionId, event: Event, key: str | None = None) -> AppendResult:
        """Append one event. For many events, use an appender."""
        return await self.write(lambda tx: tx.append(session_id, event, key))

    def appender(self, session_id: SessionId, *, window: int = 200, mask: Mask | None = None) -> Appender:
        """A stream of events into one session, with at most `window` events not yet durable."""
        return Appender(self.write, session_id, window=window, mask=mask or Mask())

    async def session(self, session_id: SessionId) -> StoredSession | None:
        """The session, or None if there is none with this id."""
        return await self.read(lambda tx: tx.session(session_id))

    async def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        """One page of the sessions that match the query."""
        return await self.read(lambda tx: tx.sessions(query))

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """One page of the messages and titles that contain all of the words, including the latest messages."""
        await self.write(lambda tx: tx.index_messages())
        return await self.read(lambda tx: tx.search(query))

    async def events(self, session_id: SessionId, *, after: int = 0) -> AsyncIterator[StoredEvent]:
        """All events after number `after`, oldest first. Reads a thousand at a time."""
        while True:
            start = after
            batch = await self.read(lambda tx, start=start: tx.events(session_id, start, _BATCH_SIZE))
            for stored in batch:
                yield stored
            if len(batch) < _BATCH_SIZE:
                return
            after = batch[-1].seq

    async def acquire(self, session_id: SessionId) -> Lease:
        """Acquire the session's lease, or raise an error that names its owner."""
        return await self.write(lambda tx: tx.acquire(session_id))

    async def release(self, session_id: SessionId) -> None:
        """Release the session's lease."""
        await self.write(lambda tx: tx.release(session_id))
