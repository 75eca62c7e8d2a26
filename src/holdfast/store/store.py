"""The store as everything above sees it: functions that read or write, run whole or not at all."""

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
from holdfast.store.rows import (
    Appended,
    Approval,
    AuditRow,
    Hit,
    Lease,
    NewSession,
    OpenTurn,
    Page,
    SessionChange,
    StoredEvent,
    StoredSession,
)

T = TypeVar("T")
_AT_ONCE = 1000


class Reads(Protocol):
    """What can be read, all of it from one moment."""

    def session(self, session_id: SessionId) -> StoredSession | None:
        """The session of this id."""
        ...

    def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        """The sessions that answer the query."""
        ...

    def search(self, query: SearchQuery) -> Page[Hit]:
        """The messages and titles that have the words."""
        ...

    def events(self, session_id: SessionId, after: int = 0, limit: int = _AT_ONCE) -> tuple[StoredEvent, ...]:
        """The events that follow a place in the log, in order."""
        ...

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        """Which servers the session got last, and who was refused."""
        ...

    def open_turns(self) -> tuple[OpenTurn, ...]:
        """Every turn that began and did not end."""
        ...

    def open_calls(self, session_id: SessionId) -> tuple[ToolCalled, ...]:
        """Every call of the session that began and did not end, in order."""
        ...

    def lease(self, session_id: SessionId) -> Lease | None:
        """Who took hold of the session last, dead or alive."""
        ...

    def approval(self, what: str, content_hash: str) -> Approval | None:
        """Whether, when and by whom this very content was approved."""
        ...

    def approvals(self, beginning: str = "") -> tuple[Approval, ...]:
        """Everything that was approved, as far as what it is about begins like this."""
        ...

    def store_id(self) -> bytes:
        """What tells this store from every other one."""
        ...

    def audit_head(self) -> AuditRow | None:
        """The last line of the audit."""
        ...

    def audit_row(self, seq: int) -> AuditRow | None:
        """One line of the audit."""
        ...

    def audit_rows(self, after: int = 0, session_id: SessionId | None = None) -> Iterator[AuditRow]:
        """The lines of the audit that follow a place, one by one, of one session or of all."""
        ...


class Tx(Reads, Protocol):
    """What can be written; all that one function writes is kept, or none of it."""

    def create(self, new: NewSession) -> StoredSession:
        """Keep a new session; to repeat it after a crash is harmless."""
        ...

    def change(self, session_id: SessionId, change: SessionChange) -> StoredSession:
        """Change what is kept about a session beside its events."""
        ...

    def delete(self, session_id: SessionId) -> bool:
        """Forget a session and its events; the audit of what it did stays. Says whether there was one."""
        ...

    def append(self, session_id: SessionId, event: Event, key: str | None = None) -> Appended:
        """Add an event at the end of the session's log; a key that is there already adds nothing."""
        ...

    def append_many(self, session_id: SessionId, events: Sequence[Event]) -> list[Appended]:
        """Add events of a running turn (`projection.PASSING`) at the end of the session's log, in order."""
        ...

    def index(self) -> None:
        """Bring the search up to the last word that was said."""
        ...

    def hold(self, session_id: SessionId) -> Lease:
        """Take hold of a session, or say who has it."""
        ...

    def let_go(self, session_id: SessionId) -> None:
        """Let go of a session; of one that is not ours, nothing happens."""
        ...

    def approve(self, approval: Approval) -> None:
        """Keep that a person agreed."""
        ...

    def revoke(self, what: str) -> int:
        """Forget every approval of this thing; says how many there were."""
        ...

    def audit_append(self, row: AuditRow) -> None:
        """Add a line to the audit; its place must be the one after the last."""
        ...


# Runs after a commit, where the commit ran; the seconds after which it wants to run again at the latest.
AfterCommit = Callable[[Reads], float | None]


class Store(ABC):
    """Keeps sessions, their events and the audit. A store of another kind gives these four, and the rest follows."""

    @abstractmethod
    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a function in a transaction of its own; when this returns, what it wrote is durable.

        The function runs in the store's one writing thread, once, and must not wait for anything.
        A caller that is cancelled meanwhile does not know whether the write took place: write with keys.
        """

    @abstractmethod
    async def read(self, work: Callable[[Reads], T]) -> T:
        """Run a function that reads, beside the writing and off the event loop."""

    @abstractmethod
    def after_commit(self, chore: AfterCommit) -> None:
        """From now on, run this after every commit."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for, let go of every session, and of the files."""

    def owe(self, work: Callable[[Tx], object], then: Callable[[], object] | None = None) -> None:
        """Write what took place and could not be written, as soon as it can be, before all else; and say when it is.

        This is for stores whose writes fail for a while, as on a full disk; the others are never asked.
        """
        raise HoldfastError(codes.STORE_FAILED, f"{type(self).__name__} keeps nothing in mind.")

    @property
    def owes(self) -> int:
        """How much is owed."""
        return 0

    async def create(self, new: NewSession) -> StoredSession:
        """Keep a new session."""
        return await self.write(lambda tx: tx.create(new))

    async def append(self, session_id: SessionId, event: Event, key: str | None = None) -> Appended:
        """Add one event; for many, an appender does not wait for each."""
        return await self.write(lambda tx: tx.append(session_id, event, key))

    def appender(self, session_id: SessionId, *, window: int = 200, mask: Mask | None = None) -> Appender:
        """A stream of events into one session."""
        return Appender(self.write, session_id, window=window, mask=mask or Mask())

    async def session(self, session_id: SessionId) -> StoredSession | None:
        """The session of this id."""
        return await self.read(lambda reads: reads.session(session_id))

    async def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        """The sessions that answer the query."""
        return await self.read(lambda reads: reads.sessions(query))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """The messages and titles that have the words, up to the last one said."""
        await self.write(lambda tx: tx.index())
        return await self.read(lambda reads: reads.search(query))

    async def events(self, session_id: SessionId, *, after: int = 0) -> AsyncIterator[StoredEvent]:
        """All events that follow a place in the log, a thousand in memory at a time."""
        while True:
            start = after
            some = await self.read(lambda reads, start=start: reads.events(session_id, start, _AT_ONCE))
            for stored in some:
                yield stored
            if len(some) < _AT_ONCE:
                return
            after = some[-1].seq

    async def hold(self, session_id: SessionId) -> Lease:
        """Take hold of a session, or say who has it."""
        return await self.write(lambda tx: tx.hold(session_id))

    async def let_go(self, session_id: SessionId) -> None:
        """Let go of a session."""
        await self.write(lambda tx: tx.let_go(session_id))
