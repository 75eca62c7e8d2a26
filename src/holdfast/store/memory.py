"""The store in memory: for tests, with the meaning of the real one and nothing of its durability."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, ToolCalled, ToolEnded
from holdfast.model.ids import SessionId
from holdfast.store import clock
from holdfast.store.clock import from_stored, to_stored
from holdfast.store.codec import encode_event
from holdfast.store.cursor import decode_cursor, encode_cursor
from holdfast.store.lease import LEASE_MICROSECONDS, check_free, lost
from holdfast.store.owner import this_process
from holdfast.store.projection import PASSING, project
from holdfast.store.query import Reach, SearchQuery, SessionQuery
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
    SessionState,
    StoredEvent,
    StoredSession,
)
from holdfast.store.rules import check_change, check_new, key_reused, once, same_session, unknown_session
from holdfast.store.store import AfterCommit, Reads, Store, Tx
from holdfast.store.words import phrases, pieces, snippet, spoken

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(Store):
    """Keeps everything until it is closed. Two stores on one `Shelf` are like two processes on one file."""

    def __init__(self, shelf: "Shelf | None" = None, *, now: Callable[[], int] = clock.now) -> None:
        self._tx = _MemoryTx(shelf or Shelf(), secrets.token_hex(8), now)
        self._chores: list[AfterCommit] = []
        self._closed = False

    async def __aenter__(self) -> "MemoryStore":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a function; if it fails, all that it wrote is undone."""
        self._check_open()
        outcome = self._tx.run(work)
        for chore in self._chores:
            chore(self._tx)
        return outcome

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Run a function that reads."""
        self._check_open()
        return work(self._tx)

    def after_commit(self, chore: AfterCommit) -> None:
        """From now on, run this after every write."""
        self._chores.append(chore)

    async def close(self) -> None:
        """Let go of every session."""
        if not self._closed:
            self._closed = True
            self._tx.let_go_of_all()

    def _check_open(self) -> None:
        if self._closed:
            raise HoldfastError(codes.STORE_CLOSED, "The store in memory is closed.")


class Shelf:
    """What is kept, and how to undo the last of it."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, StoredSession] = {}
        self.events: dict[SessionId, list[StoredEvent]] = {}
        self.order: dict[SessionId, int] = {}
        self.said: dict[tuple[SessionId, str], int] = {}
        self.leases: dict[SessionId, Lease] = {}
        self.approvals: dict[tuple[str, str], Approval] = {}
        self.audit: list[AuditRow] = []
        self.secret = secrets.token_bytes(32)
        self.store_id = secrets.token_bytes(16)
        self.count = 0
        self.undo: list[Callable[[], object]] = []

    def next_number(self) -> int:
        """A number larger than all before."""
        self.count += 1
        return self.count

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Set an entry, undoably."""
        if key in mapping:
            before = mapping[key]
            self.undo.append(lambda: mapping.__setitem__(key, before))
        else:
            self.undo.append(lambda: mapping.pop(key, None))
        mapping[key] = value

    def drop(self, mapping: dict[K, V], key: K) -> None:
        """Remove an entry, undoably."""
        if key in mapping:
            before = mapping.pop(key)
            self.undo.append(lambda: mapping.__setitem__(key, before))

    def add(self, values: list[V], value: V) -> None:
        """Append a value, undoably."""
        values.append(value)
        self.undo.append(values.pop)


class _MemoryTx:
    def __init__(self, shelf: Shelf, holder: str, now: Callable[[], int]) -> None:
        self._shelf = shelf
        self._holder = holder
        self._now = now
        self._held: set[SessionId] = set()

    def run(self, work: Callable[[Tx], T]) -> T:
        self._shelf.undo.clear()
        held = set(self._held)
        try:
            return work(self)
        except BaseException:
            self._held = held
            while self._shelf.undo:
                self._shelf.undo.pop()()
            raise

    def session(self, session_id: SessionId) -> StoredSession | None:
        stored = self._shelf.sessions.get(session_id)
        if stored is None:
            return None
        last_seq, lease = len(self._shelf.events[session_id]), self._shelf.leases.get(session_id)
        return replace(stored, last_seq=last_seq, lease=lease)

    def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        found = {
            (to_stored(session.updated), self._shelf.order[session.context.session_id]): session
            for session in self._within(query.reach)
            if query.cwd in (None, session.context.cwd)
            and query.source in (None, session.source)
            and query.parent in (None, session.context.parent_session_id)
            and query.state in (None, session.state)
            and set(query.tags) <= set(session.tags)
        }
        return self._page(found, query)

    def search(self, query: SearchQuery) -> Page[Hit]:
        wanted = phrases(query.words)
        found: dict[tuple[int, int], Hit] = {}
        for session in self._within(query.reach):
            if query.source in (None, session.source) and set(query.tags) <= set(session.tags):
                for message_id, (seq, text) in self._texts(session).items():
                    if _has(pieces(text), wanted):
                        place = (self._shelf.said.get((session.context.session_id, message_id), 0), 0)
                        found[place] = Hit(
                            session=session, message_id=message_id, seq=seq, snippet=snippet(text, wanted)
                        )
        return self._page(found, query)

    def events(self, session_id: SessionId, after: int = 0, limit: int = 1000) -> tuple[StoredEvent, ...]:
        return tuple(self._shelf.events.get(session_id, [])[after : after + limit])

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        for stored in reversed(self._shelf.events.get(session_id, [])):
            if isinstance(stored.event, ServersResolved):
                return stored.event
        return None

    def open_turns(self) -> tuple[OpenTurn, ...]:
        return tuple(
            OpenTurn(session_id=session_id, turn_id=session.open_turn)
            for session_id, session in self._shelf.sessions.items()
            if session.open_turn
        )

    def open_calls(self, session_id: SessionId) -> tuple[ToolCalled, ...]:
        found: dict[str, ToolCalled] = {}
        for stored in self._shelf.events.get(session_id, []):
            match stored.event:
                case ToolCalled(call_id=call_id):
                    found[call_id] = stored.event
                case ToolEnded(call_id=call_id):
                    found.pop(call_id, None)
                case _:
                    pass
        return tuple(found.values())

    def lease(self, session_id: SessionId) -> Lease | None:
        return self._shelf.leases.get(session_id)

    def approval(self, what: str, content_hash: str) -> Approval | None:
        return self._shelf.approvals.get((what, content_hash))

    def approvals(self, beginning: str = "") -> tuple[Approval, ...]:
        found = (one for one in self._shelf.approvals.values() if one.what.startswith(beginning))
        return tuple(sorted(found, key=lambda one: (one.what, one.at, one.content_hash)))

    def store_id(self) -> bytes:
        return self._shelf.store_id

    def audit_head(self) -> AuditRow | None:
        return self._shelf.audit[-1] if self._shelf.audit else None

    def audit_row(self, seq: int) -> AuditRow | None:
        return self._shelf.audit[seq - 1] if 0 < seq <= len(self._shelf.audit) else None

    def audit_rows(self, after: int = 0, session_id: SessionId | None = None) -> Iterator[AuditRow]:
        for row in self._shelf.audit[after:]:
            if session_id is None or msgspec.json.decode(row.body).get("session_id") == session_id:
                yield row

    def create(self, new: NewSession) -> StoredSession:
        session_id, now = check_new(new).context.session_id, from_stored(self._now())
        stored = self.session(session_id)
        if stored is not None:
            return same_session(stored, new)
        stored = StoredSession(
            context=new.context,
            title=new.title,
            tags=tuple(sorted(set(new.tags))),
            source=new.source,
            settings=dict(new.settings),
            state=SessionState.OPEN,
            created=now,
            updated=now,
            last_seq=0,
            open_turn="",
        )
        self._shelf.put(self._shelf.sessions, session_id, stored)
        self._shelf.put(self._shelf.events, session_id, [])
        self._shelf.put(self._shelf.order, session_id, self._shelf.next_number())
        self._speak(session_id, "")
        return stored

    def change(self, session_id: SessionId, change: SessionChange) -> StoredSession:
        check_change(change)
        before = self._writable(session_id)
        context = replace(
            before.context,
            cwd=before.context.cwd if change.cwd is None else change.cwd,
            roots=before.context.roots if change.roots is None else change.roots,
        )
        after = replace(
            before,
            context=context,
            title=before.title if change.title is None else change.title,
            tags=before.tags if change.tags is None else tuple(sorted(set(change.tags))),
            settings=before.settings if change.settings is None else dict(change.settings),
            updated=from_stored(self._now()),
        )
        self._shelf.put(self._shelf.sessions, session_id, after)
        return replace(after, last_seq=len(self._shelf.events[session_id]))

    def delete(self, session_id: SessionId) -> bool:
        if session_id not in self._shelf.sessions:
            return False
        self._writable(session_id)
        self._shelf.drop(self._shelf.sessions, session_id)
        self._shelf.drop(self._shelf.events, session_id)
        self._shelf.drop(self._shelf.order, session_id)
        self._shelf.drop(self._shelf.leases, session_id)
        self._held.discard(session_id)
        return True

    def append(self, session_id: SessionId, event: Event, key: str | None = None) -> Appended:
        session, log = self._writable(session_id), self._shelf.events[session_id]
        encode_event(event)
        given, key = key, key or once(event)
        for stored in log if key is not None else ():
            if stored.key == key:
                if given is not None and stored.event != event:
                    raise key_reused(session_id, str(key), stored.seq)
                return Appended(stored.seq, new=False)
        now = self._now()
        self._shelf.add(log, StoredEvent(seq=len(log) + 1, microseconds=now, event=event, key=key))
        words = spoken(event)
        if words is not None:
            self._speak(session_id, words[0])
        if not isinstance(event, PASSING):
            self._shelf.put(self._shelf.sessions, session_id, project(session, event, from_stored(now)))
        return Appended(len(log), new=True)

    def append_many(self, session_id: SessionId, events: Sequence[Event]) -> list[Appended]:
        return [self.append(session_id, event) for event in events]

    def index(self) -> None:
        """Nothing to do: a search here reads all there is."""

    def hold(self, session_id: SessionId) -> Lease:
        now = self._now()
        held = self._shelf.leases.get(session_id)
        if held is not None:
            check_free(held, now)
        if session_id not in self._shelf.sessions:
            raise unknown_session(session_id)
        until = from_stored(now + LEASE_MICROSECONDS)
        lease = Lease(session_id=session_id, holder=self._holder, owner=this_process(), until=until)
        self._shelf.put(self._shelf.leases, session_id, lease)
        self._held.add(session_id)
        return lease

    def let_go(self, session_id: SessionId) -> None:
        self._held.discard(session_id)
        lease = self._shelf.leases.get(session_id)
        if lease is not None and lease.holder == self._holder:
            self._shelf.drop(self._shelf.leases, session_id)

    def let_go_of_all(self) -> None:
        for session_id in list(self._shelf.leases):
            self.let_go(session_id)

    def approve(self, approval: Approval) -> None:
        self._shelf.put(self._shelf.approvals, (approval.what, approval.content_hash), approval)

    def revoke(self, what: str) -> int:
        revoked = [key for key in self._shelf.approvals if key[0] == what]
        for key in revoked:
            self._shelf.drop(self._shelf.approvals, key)
        return len(revoked)

    def audit_append(self, row: AuditRow) -> None:
        if row.seq != len(self._shelf.audit) + 1:
            raise ValueError(f"The audit's next line is {len(self._shelf.audit) + 1}, not {row.seq}.")
        self._shelf.add(self._shelf.audit, row)

    def _within(self, reach: Reach) -> Iterator[StoredSession]:
        for session_id in list(self._shelf.sessions):
            session = self.session(session_id)
            if (
                session is not None
                and reach.workspace_id in (None, session.context.workspace_id)
                and reach.trust_level in (None, session.context.trust_level)
                and reach.user_id in (None, session.context.user_id or "")
            ):
                yield session

    def _page(self, found: dict[tuple[int, int], T], query: SessionQuery | SearchQuery) -> Page[T]:
        position = decode_cursor(query, self._shelf.secret)
        places = sorted((place for place in found if position is None or place < position), reverse=True)
        shown = places[: query.limit]
        cursor = encode_cursor(shown[-1], query, self._shelf.secret) if len(places) > query.limit else None
        return Page(items=tuple(found[place] for place in shown), cursor=cursor)

    def _texts(self, session: StoredSession) -> dict[str, tuple[int, str]]:
        texts = {"": (0, session.title)}
        for stored in self._shelf.events[session.context.session_id]:
            words = spoken(stored.event)
            if words is not None:
                seq, text = texts.get(words[0], (stored.seq, ""))
                texts[words[0]] = (seq, text + words[1])
        return texts

    def _speak(self, session_id: SessionId, message_id: str) -> None:
        if (session_id, message_id) not in self._shelf.said:
            self._shelf.put(self._shelf.said, (session_id, message_id), self._shelf.next_number())

    def _writable(self, session_id: SessionId) -> StoredSession:
        session = self._shelf.sessions.get(session_id)
        if session is None:
            raise unknown_session(session_id)
        lease = self._shelf.leases.get(session_id)
        if lease is None or lease.holder != self._holder:
            if session_id in self._held:
                raise lost(session_id)
            if lease is not None:
                check_free(lease, self._now())
                self._shelf.drop(self._shelf.leases, session_id)
        return session


def _has(text: tuple[str, ...], wanted: tuple[tuple[str, ...], ...]) -> bool:
    return all(
        any(text[start : start + len(phrase)] == phrase for start in range(len(text) - len(phrase) + 1))
        for phrase in wanted
    )
