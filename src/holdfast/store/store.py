"""The interface of a store and of its transactions."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import MAIN_AGENT_ORIGIN, Event, Origin, ServersResolved
from holdfast.model.ids import SessionId
from holdfast.store.anchor import Anchor
from holdfast.store.append_batch import Feed
from holdfast.store.appender import Appender
from holdfast.store.query import SearchQuery, SessionQuery
from holdfast.store.types import (
    AppendResult,
    Approval,
    AuditRow,
    Hold,
    InboxMessage,
    Lease,
    NewSession,
    Page,
    SearchHit,
    SessionChange,
    StoredEvent,
    StoredSession,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
_BATCH_SIZE = 1000
MAX_UNDELIVERED = 1000
"""How many undelivered messages a session may have."""
_MIN_PAUSE_SECONDS = 0.01  # the pause between two calls of `delete_part`, in which other callers can write
_NO_SECRETS = Mask()
_submitted: set["asyncio.Future[Any]"] = set()  # asyncio keeps no strong references to tasks


class ReadTx(Protocol):
    """A read transaction: everything it returns is from one snapshot."""

    def now(self) -> datetime:
        """The store's time, with which leases are compared. The clocks of hosts may differ."""
        ...

    def session(self, session_id: SessionId) -> StoredSession | None:
        """The session with this id; None if there is none."""
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
        """The events after number `after`, oldest first: at most `limit`, and fewer if they are large, but at least one."""
        ...

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        """The session's latest resolution: its servers and its refusals."""
        ...

    def open_calls(self, session_id: SessionId) -> tuple[StoredEvent, ...]:
        """The `ToolCalled` events of the session's calls without an end, oldest first."""
        ...

    def used_servers(self, session_id: SessionId) -> frozenset[str]:
        """The names of the servers that got a call in this session."""
        ...

    def stored_bytes(self, session_id: SessionId) -> int:
        """The size of the session's events, as they are encoded."""
        ...

    def lease(self, session_id: SessionId) -> Lease | None:
        """The session's lease; its owner may be dead. None if there is none."""
        ...

    def inbox(
        self, session_id: SessionId, *, only_undelivered: bool = True, limit: int = 100
    ) -> tuple[InboxMessage, ...]:
        """The oldest undelivered messages to the session, oldest first; at most `limit`.

        With `only_undelivered=False`, the latest messages instead, delivered or not.
        """
        ...

    def sessions_with_messages(self) -> frozenset[SessionId]:
        """The sessions that are held, by any process, and have undelivered messages."""
        ...

    def approvals(self, prefix: str = "") -> tuple[Approval, ...]:
        """The approvals whose key starts with this prefix."""
        ...

    def store_id(self) -> bytes:
        """The random id of this store."""
        ...

    def audit_head(self, book: int = 0) -> AuditRow | None:
        """The last row of a book of the audit; see `AuditRow.book`."""
        ...

    def audit_row(self, seq: int, book: int = 0) -> AuditRow | None:
        """The row with this number in a book of the audit."""
        ...

    def audit_rows(
        self, after: int = 0, session_id: SessionId | None = None, book: int = 0
    ) -> Iterator[AuditRow]:
        """The rows of a book after number `after`, of one session or of all."""
        ...

    def session_with_unrecorded_calls(self) -> SessionId | None:
        """The id of a session with more ended calls than audit records of calls; None if there is none."""
        ...


class Tx(ReadTx, Protocol):
    """A write transaction: either everything that a function writes is committed, or nothing.

    Every write to a session takes its `Hold`, and raises SESSION_HELD if that hold has ended.
    """

    def create(self, new: NewSession) -> StoredSession:
        """Store a new session. If the same session is stored already, return that one, so that a caller can repeat this after a crash."""
        ...

    def acquire(self, session_id: SessionId) -> Hold:
        """Acquire the session, or raise an error that names its owner. All earlier holds on it end."""
        ...

    def check_hold(self, hold: Hold) -> None:
        """Raise an error if this hold has ended."""
        ...

    def release(self, hold: Hold) -> None:
        """End this hold. Does nothing if it has ended."""
        ...

    def change(self, hold: Hold, change: SessionChange) -> StoredSession:
        """Change fields of the session without an event."""
        ...

    def delete(self, hold: Hold) -> None:
        """Delete the session and its events, but not its audit records."""
        ...

    def delete_part(self, hold: Hold) -> bool:
        """Delete a small part of the session's data, the last events first. Return whether some of it is left.

        A store that can delete any session quickly may do nothing and return False.
        """
        ...

    def append(
        self, hold: Hold, event: Event, key: str | None = None, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> AppendResult:
        """Append an event to the session, unless it has one with the same key."""
        ...

    def append_many(
        self, hold: Hold, events: Sequence[Event], origin: Origin = MAIN_AGENT_ORIGIN
    ) -> list[AppendResult]:
        """Append events in order. All must be of types in `projection.EVENTS_WITHOUT_PROJECTION`."""
        ...

    def send(self, hold: Hold, message: InboxMessage) -> bool:
        """Store a message from the held session to another one. Return False if that session may not get it.

        A session can send to other sessions of its workspace and its user; a sandboxed session only to sandboxed ones. A session
        gets at most `MAX_UNDELIVERED` undelivered messages.
        """
        ...

    def deliver(self, hold: Hold, message_id: str) -> bool:
        """Mark a message to the held session as delivered by the session's last event.

        Return False if the session has no such message, or if it is already delivered.
        """
        ...

    def index_messages(self) -> None:
        """Add all messages that are not indexed yet to the search index."""
        ...

    def approve(self, approval: Approval) -> None:
        """Store an approval."""
        ...

    def remove_approvals(self, prefix: str) -> None:
        """Remove the approvals whose key starts with this prefix."""
        ...

    def audit_append(self, row: AuditRow) -> None:
        """Append a row to its book of the audit; its number must be the next one of that book."""
        ...


OnDone = Callable[[Any, BaseException | None], object]
"""Called on the event loop with the result of a write, or with its error."""

AfterCommit = Callable[[ReadTx], float | None]
"""Called after a commit. Returns how many seconds must pass before the store calls it again, even without another commit; None: call
it again after the next commit."""


class Store(ABC):
    """Stores sessions, their events and messages, approvals, and the audit. Open one with `open_store`."""

    book = 0
    """The book of the audit that this store appends to."""
    holder_id = ""
    """The random id of this open store. Empty for a store in memory, and for one that is only read."""

    @property
    @abstractmethod
    def anchor(self) -> Anchor:
        """The anchor of this store's book."""

    @abstractmethod
    def now(self) -> datetime:
        """The store's time; see `ReadTx.now`."""

    @abstractmethod
    async def write(
        self,
        work: Callable[[Tx], T],
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
    ) -> T:
        """Run a function in a write transaction. When this returns, its writes are durable.

        The function may run in another thread and must not block. The store may roll a run back and run the function again, so it
        must have no effects except those on its `Tx`. If the caller is cancelled, it is not known whether the write took place;
        event keys make it safe to write again.

        If the write fails, an error is raised. With `must_happen`, a write that failed for a temporary reason, such as a full disk, is
        also postponed: the store runs the function again as soon as it can, before any other write, and then calls `on_postponed_done`.
        """

    def submit(
        self, work: Callable[[Tx], Any], on_done: OnDone, *, quota_owner: str = "", size: int = 0
    ) -> None:
        """Like `write`, but return at once, and call `on_done` when the write is durable or has failed.

        The writes of one `quota_owner` are made in the order in which they are submitted. If large writes wait, owners take turns.
        `size` is about how many bytes are written.
        """
        task = asyncio.ensure_future(self.write(work))
        _submitted.add(task)
        task.add_done_callback(lambda done: _call_on_done(done, on_done))

    @abstractmethod
    async def read(self, work: Callable[[ReadTx], T]) -> T:
        """Run a function in a read transaction."""

    @abstractmethod
    def after_commit(self, hook: AfterCommit) -> None:
        """Call this hook after every commit from now on, but not during the number of seconds that its last call returned."""

    @abstractmethod
    async def close(self) -> None:
        """Finish pending reads and writes, end all holds and close the files."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def postponed_writes(self) -> int:
        """How many writes with `must_happen` have failed and wait to be repeated."""
        return 0

    async def create(self, new: NewSession) -> StoredSession:
        """Store a new session."""
        return await self.write(lambda tx: tx.create(new))

    async def append(
        self, hold: Hold, event: Event, key: str | None = None, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> AppendResult:
        """Append one event. For many events, use an appender."""
        return await self.write(lambda tx: tx.append(hold, event, key, origin))

    def appender(
        self,
        hold: Hold,
        *,
        window: int = 200,
        mask: Mask | None = _NO_SECRETS,
        feed: Feed | None = None,
        quota_owner: str = "",
    ) -> Appender:
        """An appender for one session, with at most `window` events that are not yet durable.

        `mask` masks the events; None if the caller has masked them. After each commit, the new events are passed to `feed`.
        `quota_owner` pays for the writes; by default, it is the session.
        """
        submit = partial(self.submit, quota_owner=quota_owner or hold.session_id)
        return Appender(submit, hold, window=window, mask=mask, feed=feed)

    async def delete_in_parts(self, hold: Hold) -> None:
        """Delete a large session. Each part is a transaction of its own, so that other writes are not delayed."""
        has_more = True
        while has_more:
            began = time.monotonic()
            has_more = await self.write(lambda tx: tx.delete_part(hold))
            await asyncio.sleep(max(_MIN_PAUSE_SECONDS, time.monotonic() - began))
        await self.write(lambda tx: tx.delete(hold))

    async def session(self, session_id: SessionId) -> StoredSession | None:
        """The session with this id; None if there is none."""
        return await self.read(lambda tx: tx.session(session_id))

    async def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        """One page of the sessions that match the query."""
        return await self.read(lambda tx: tx.sessions(query))

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """One page of the messages and titles that contain all of the words, including the latest messages."""
        await self.write(lambda tx: tx.index_messages())
        return await self.read(lambda tx: tx.search(query))

    async def events(self, session_id: SessionId, *, after: int = 0) -> AsyncIterator[StoredEvent]:
        """All events after number `after`, oldest first."""
        while batch := await self.read(lambda tx, start=after: tx.events(session_id, start, _BATCH_SIZE)):
            for stored in batch:
                yield stored
            after = batch[-1].seq

    async def acquire(self, session_id: SessionId) -> Hold:
        """Acquire the session, or raise an error that names its owner. All earlier holds on it end."""
        return await self.write(lambda tx: tx.acquire(session_id))

    async def release(self, hold: Hold) -> None:
        """End this hold, now or as soon as the store can be written to. Does nothing if it has ended."""
        try:
            await self.write(lambda tx: tx.release(hold), must_happen=True)
        except HoldfastError as error:
            # The hold also ends when this store is closed, or when its process ends.
            log.warning(
                "session not released yet", extra={"session": hold.session_id, "reason": error.message}
            )


def _call_on_done(task: "asyncio.Future[Any]", on_done: OnDone) -> None:
    _submitted.discard(task)
    if task.cancelled():
        on_done(None, HoldfastError(codes.CANCELLED, "The write was cancelled."))
    elif (error := task.exception()) is not None:
        on_done(None, error)
    else:
        on_done(task.result(), None)
