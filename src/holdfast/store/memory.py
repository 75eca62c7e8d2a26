"""The store in memory: for `memory:` URLs, for sessions that are not kept, and for tests. Nothing in it outlives the process."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    MAIN_AGENT_ORIGIN,
    Event,
    Origin,
    ServersResolved,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.ids import SessionId
from holdfast.model.trust import lowest_trust
from holdfast.store import clock
from holdfast.store.anchor import Anchor, MemoryAnchor
from holdfast.store.clock import from_microseconds, to_microseconds
from holdfast.store.constraints import (
    check_change,
    check_new,
    check_same_session,
    default_key,
    key_reused,
    unknown_session,
)
from holdfast.store.event_codec import encode_event
from holdfast.store.lease import LEASE_SECONDS, check_epoch, check_free
from holdfast.store.owner import Owner, this_process
from holdfast.store.projection import EVENTS_OF_CALLS, changes_session, project
from holdfast.store.query import (
    SearchQuery,
    SessionQuery,
    Visibility,
    count_fitting,
    decode_cursor,
    encode_cursor,
)
from holdfast.store.search import contains_words, make_snippet, parse_words, searchable_text
from holdfast.store.store import MAX_UNDELIVERED, AfterCommit, OnDone, ReadTx, Store, Tx
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
    SessionState,
    StoredEvent,
    StoredSession,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(Store):
    """Keeps everything in memory. Two stores with one `MemoryDatabase` are like two processes with one file.

    With `run_twice`, every write is run, rolled back and run again, to test that it can be repeated.
    """

    def __init__(
        self,
        database: "MemoryDatabase | None" = None,
        *,
        lease_seconds: float = LEASE_SECONDS,
        owner: Owner | None = None,
        now: Callable[[], int] = clock.now,
        run_twice: bool = False,
    ) -> None:
        self._db = database or MemoryDatabase()
        self._tx = _MemoryTx(self._db, owner or this_process(), timedelta(seconds=lease_seconds), now)
        self._now = now
        self._run_twice = run_twice
        self._hooks: dict[AfterCommit, float] = {}
        """The earliest time at which to call each hook again."""
        self._closed = False

    @property
    def anchor(self) -> Anchor:
        return self._db.anchor

    def now(self) -> datetime:
        return from_microseconds(self._now())

    async def write(
        self,
        work: Callable[[Tx], T],
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
    ) -> T:
        if self._closed:
            raise _closed_error()
        return self._write(work)

    def submit(
        self, work: Callable[[Tx], T], on_done: OnDone, *, quota_owner: str = "", size: int = 0
    ) -> None:
        """Write, and call `on_done` before this method returns."""
        if self._closed:
            raise _closed_error()
        try:
            result = self._write(work)
        except Exception as error:
            on_done(None, error)
        else:
            on_done(result, None)

    def _write(self, work: Callable[[Tx], T]) -> T:
        if self._run_twice:
            with suppress(_RolledBackError):
                self._tx.run(lambda tx: _roll_back_after(work, tx))
        result = self._tx.run(work)
        now = time.monotonic()
        for hook, due in self._hooks.items():
            if now >= due:
                self._hooks[hook] = now + (hook(self._tx) or 0.0)
        return result

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        if self._closed:
            raise _closed_error()
        return work(self._tx)

    def after_commit(self, hook: AfterCommit) -> None:
        self._hooks[hook] = 0.0

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._tx.release_all()


def _closed_error() -> HoldfastError:
    return HoldfastError(codes.STORE_CLOSED, "The in-memory store is closed.")


class _RolledBackError(Exception):
    """Raised to roll back the first run of a write with `run_twice`."""


def _roll_back_after(work: Callable[[Tx], object], tx: Tx) -> None:
    work(tx)
    raise _RolledBackError


class MemoryDatabase:
    """The data of one or more memory stores, with an undo log for the current transaction."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, StoredSession] = {}
        self.events: dict[SessionId, list[StoredEvent]] = {}
        self.by_key: dict[SessionId, dict[str, StoredEvent]] = {}
        """The events that have a key."""
        self.session_numbers: dict[SessionId, int] = {}
        """The order in lists of sessions with the same update time."""
        self.message_numbers: dict[tuple[SessionId, str], int] = {}
        """By session and message id: the order in search results."""
        self.leases: dict[SessionId, Lease] = {}
        self.inbox: dict[str, InboxMessage] = {}
        self.approvals: dict[tuple[str, str], Approval] = {}
        self.audit: dict[int, list[AuditRow]] = {}
        self.anchor = MemoryAnchor()
        self.last_epoch = 0
        self.cursor_secret = secrets.token_bytes(32)
        self.store_id = secrets.token_bytes(16)
        self.last_number = 0
        self.undo: list[Callable[[], object]] = []
        """Functions that undo the writes of the current transaction. A rollback calls them, the last one first."""

    def next_epoch(self) -> int:
        """The next epoch. A rollback does not undo this, because no two holds may have the same epoch."""
        self.last_epoch += 1
        return self.last_epoch

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    # Each of these three methods makes a change, and adds its undo function. `_MemoryTx.append` does both itself.

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        if key in mapping:
            before = mapping[key]
            self.undo.append(lambda: mapping.__setitem__(key, before))
        else:
            self.undo.append(lambda: mapping.pop(key, None))
        mapping[key] = value

    def drop(self, mapping: dict[K, V], key: K) -> None:
        if key in mapping:
            before = mapping.pop(key)
            self.undo.append(lambda: mapping.__setitem__(key, before))

    def add(self, values: list[V], value: V) -> None:
        values.append(value)
        self.undo.append(values.pop)


class _MemoryTx:
    def __init__(
        self, db: MemoryDatabase, owner: Owner, lease_duration: timedelta, now: Callable[[], int]
    ) -> None:
        self._db = db
        self._holder_id = secrets.token_hex(8)
        self._owner = owner
        self._lease_duration = lease_duration
        self._now = now

    def run(self, work: Callable[[Tx], T]) -> T:
        self._db.undo.clear()
        try:
            return work(self)
        except BaseException:
            while self._db.undo:
                self._db.undo.pop()()
            raise

    def now(self) -> datetime:
        return from_microseconds(self._now())

    def session(self, session_id: SessionId) -> StoredSession | None:
        stored = self._db.sessions.get(session_id)
        if stored is None:
            return None
        last_seq, lease = len(self._db.events[session_id]), self._db.leases.get(session_id)
        return replace(stored, last_seq=last_seq, lease=lease, read_at=self.now())

    def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        by_rank = {
            (to_microseconds(session.updated), self._db.session_numbers[session.context.session_id]): session
            for session in self._visible(query.visibility)
            if query.cwd in (None, session.context.cwd)
            and query.source in (None, session.source)
            and query.parent in (None, session.context.parent_session_id)
            and query.state in (None, session.state)
            and set(query.tags) <= set(session.tags)
            and (query.updated_before is None or session.updated < query.updated_before)
        }
        return self._page(by_rank, query, _size)

    def search(self, query: SearchQuery) -> Page[SearchHit]:
        phrases = parse_words(query.words)
        by_rank: dict[tuple[int, int], SearchHit] = {}
        for session in self._visible(query.visibility):
            if query.source in (None, session.source) and set(query.tags) <= set(session.tags):
                for message_id, (seq, text) in self._texts(session).items():
                    if contains_words(text, phrases):
                        rank = (self._db.message_numbers.get((session.context.session_id, message_id), 0), 0)
                        by_rank[rank] = SearchHit(
                            session=session,
                            message_id=message_id,
                            seq=seq,
                            snippet=make_snippet(text, phrases),
                        )
        return self._page(by_rank, query)

    def events(self, session_id: SessionId, after: int = 0, limit: int = 1000) -> tuple[StoredEvent, ...]:
        first = max(after, 0)  # a negative number would count from the end
        return tuple(self._db.events.get(session_id, [])[first : first + limit])

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        for stored in reversed(self._db.events.get(session_id, [])):
            if isinstance(stored.event, ServersResolved):
                return stored.event
        return None

    def used_servers(self, session_id: SessionId) -> frozenset[str]:
        events = [stored.event for stored in self._db.events.get(session_id, [])]
        started = {event.call_id for event in events if isinstance(event, ToolStarted)}
        return frozenset(
            event.server for event in events if isinstance(event, ToolCalled) and event.call_id in started
        )

    def stored_bytes(self, session_id: SessionId) -> int:
        return sum(len(encode_event(stored.event)[1]) for stored in self._db.events.get(session_id, []))

    def open_calls(self, session_id: SessionId) -> tuple[StoredEvent, ...]:
        by_call: dict[str, StoredEvent] = {}
        for stored in self._db.events.get(session_id, []):
            match stored.event:
                case ToolCalled(call_id=call_id):
                    by_call[call_id] = stored
                case ToolEnded(call_id=call_id):
                    by_call.pop(call_id, None)
                case _:
                    pass
        return tuple(by_call.values())

    def lease(self, session_id: SessionId) -> Lease | None:
        return self._db.leases.get(session_id)

    def inbox(
        self, session_id: SessionId, *, only_undelivered: bool = True, limit: int = 100
    ) -> tuple[InboxMessage, ...]:
        messages = [message for message in self._db.inbox.values() if message.target == session_id]
        if only_undelivered:
            return tuple(message for message in messages if not message.delivered)[:limit]
        return tuple(messages[-limit:])

    def sessions_with_messages(self) -> frozenset[SessionId]:
        waiting = {message.target for message in self._db.inbox.values() if not message.delivered}
        return frozenset(waiting & self._db.leases.keys())

    def approvals(self, prefix: str = "") -> tuple[Approval, ...]:
        matching = (one for one in self._db.approvals.values() if one.key.startswith(prefix))
        return tuple(sorted(matching, key=lambda one: (one.key, one.at, one.content_hash)))

    def store_id(self) -> bytes:
        return self._db.store_id

    def audit_head(self, book: int = 0) -> AuditRow | None:
        rows = self._db.audit.get(book)
        return rows[-1] if rows else None

    def audit_row(self, seq: int, book: int = 0) -> AuditRow | None:
        rows = self._db.audit.get(book, [])
        return rows[seq - 1] if 0 < seq <= len(rows) else None

    def audit_rows(
        self, after: int = 0, session_id: SessionId | None = None, book: int = 0
    ) -> Iterator[AuditRow]:
        for row in self._db.audit.get(book, [])[after:]:
            if session_id is None or msgspec.json.decode(row.body).get("session_id") == session_id:
                yield row

    def session_with_unrecorded_calls(self) -> SessionId | None:
        bodies = [msgspec.json.decode(row.body) for rows in self._db.audit.values() for row in rows]
        recorded = Counter(body.get("session_id") for body in bodies if body.get("kind") == "call")
        for session_id, events in self._db.events.items():
            if sum(isinstance(stored.event, ToolEnded) for stored in events) > recorded[session_id]:
                return session_id
        return None

    def create(self, new: NewSession) -> StoredSession:
        session_id, now = check_new(new).context.session_id, from_microseconds(self._now())
        stored = self.session(session_id)
        if stored is not None:
            return check_same_session(stored, new)
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
        self._db.put(self._db.sessions, session_id, stored)
        self._db.put(self._db.events, session_id, [])
        self._db.put(self._db.by_key, session_id, {})
        self._db.put(self._db.session_numbers, session_id, self._db.next_number())
        self._number_message(session_id, "")
        return stored

    def change(self, hold: Hold, change: SessionChange) -> StoredSession:
        check_change(change)
        before, session_id = self._check_writable(hold), hold.session_id
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
            updated=from_microseconds(self._now()),
        )
        self._db.put(self._db.sessions, session_id, after)
        return replace(after, last_seq=len(self._db.events[session_id]))

    def delete(self, hold: Hold) -> None:
        self._check_writable(hold)
        session_id = hold.session_id
        self._db.drop(self._db.sessions, session_id)
        self._db.drop(self._db.events, session_id)
        self._db.drop(self._db.by_key, session_id)
        self._db.drop(self._db.session_numbers, session_id)
        self._db.drop(self._db.leases, session_id)
        for number_key in [key for key in self._db.message_numbers if key[0] == session_id]:
            self._db.drop(self._db.message_numbers, number_key)
        for message in [message for message in self._db.inbox.values() if message.target == session_id]:
            self._db.drop(self._db.inbox, message.message_id)

    def delete_part(self, hold: Hold) -> bool:
        self._check_writable(hold)
        return False

    def append(
        self, hold: Hold, event: Event, key: str | None = None, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> AppendResult:
        session, session_id, db = self._check_writable(hold), hold.session_id, self._db
        log = db.events[session_id]
        _, body = encode_event(event)
        given_key, key = key, key or default_key(event)
        by_key = db.by_key[session_id]
        if key is not None and (existing := by_key.get(key)) is not None:
            if given_key is not None and existing.event != event:
                raise key_reused(session_id, key, existing.seq)
            return AppendResult(existing.seq, is_new=False, at_microseconds=existing.at_microseconds)
        now, seq = self._now(), len(log) + 1
        stored = StoredEvent(
            seq=seq,
            at_microseconds=now,
            event=event,
            key=key,
            agent=origin.agent,
            parent_call=origin.parent_call,
            cause=origin.cause,
        )
        log.append(stored)
        db.undo.append(log.pop)
        if key is not None:  # a new key
            by_key[key] = stored
            db.undo.append(by_key.popitem)
        if isinstance(event, EVENTS_OF_CALLS):
            return AppendResult(seq, True, now, len(body))
        searchable = searchable_text(event)
        if searchable is not None:
            message_id, _ = searchable
            self._number_message(session_id, message_id)
        if changes_session(event, origin):
            self._db.put(self._db.sessions, session_id, project(session, event, from_microseconds(now)))
        return AppendResult(len(log), is_new=True, at_microseconds=now, size=len(body))

    def append_many(
        self, hold: Hold, events: Sequence[Event], origin: Origin = MAIN_AGENT_ORIGIN
    ) -> list[AppendResult]:
        return [self.append(hold, event, origin=origin) for event in events]

    def send(self, hold: Hold, message: InboxMessage) -> bool:
        sender, target = self._check_writable(hold).context, self._db.sessions.get(message.target)
        if target is None or message.target == hold.session_id or not sender.workspace_id:
            return False
        context = target.context
        is_same = (context.workspace_id, context.user_id) == (sender.workspace_id, sender.user_id)
        if not is_same or lowest_trust(context.trust_level, sender.trust_level) is not context.trust_level:
            return False
        if len(self.inbox(message.target, limit=MAX_UNDELIVERED)) >= MAX_UNDELIVERED:
            return False
        stored = replace(message, sender=hold.session_id, sent=self.now(), delivered=0)
        self._db.put(self._db.inbox, message.message_id, stored)
        return True

    def deliver(self, hold: Hold, message_id: str) -> bool:
        self._check_writable(hold)
        message = self._db.inbox.get(message_id)
        if message is None or message.target != hold.session_id or message.delivered:
            return False
        self._db.put(
            self._db.inbox, message_id, replace(message, delivered=len(self._db.events[hold.session_id]))
        )
        return True

    def index_messages(self) -> None:
        """Do nothing, because a search reads all events."""

    def acquire(self, session_id: SessionId) -> Hold:
        held = self._db.leases.get(session_id)
        if held is not None:
            check_free(held, self.now())
        if session_id not in self._db.sessions:
            raise unknown_session(session_id)
        lease = Lease(
            session_id=session_id,
            epoch=self._db.next_epoch(),
            holder_id=self._holder_id,
            owner=self._owner,
            expires_at=self.now() + self._lease_duration,
        )
        self._db.put(self._db.leases, session_id, lease)
        return Hold(session_id, lease.epoch)

    def check_hold(self, hold: Hold) -> None:
        self._check_writable(hold)

    def release(self, hold: Hold) -> None:
        lease = self._db.leases.get(hold.session_id)
        if lease is not None and lease.epoch == hold.epoch:
            self._db.drop(self._db.leases, hold.session_id)

    def release_all(self) -> None:
        for session_id, lease in [*self._db.leases.items()]:
            if lease.holder_id == self._holder_id:
                self._db.drop(self._db.leases, session_id)

    def approve(self, approval: Approval) -> None:
        self._db.put(self._db.approvals, (approval.key, approval.content_hash), approval)

    def remove_approvals(self, prefix: str) -> None:
        for approval in self.approvals(prefix):
            self._db.drop(self._db.approvals, (approval.key, approval.content_hash))

    def audit_append(self, row: AuditRow) -> None:
        rows = self._db.audit.setdefault(row.book, [])
        if row.seq != len(rows) + 1:
            raise ValueError(f"The audit's next row is {len(rows) + 1}, not {row.seq}.")
        self._db.add(rows, row)

    def _visible(self, visibility: Visibility) -> Iterator[StoredSession]:
        for session_id in list(self._db.sessions):
            session = self.session(session_id)
            if (
                session is not None
                and visibility.workspace_id in (None, session.context.workspace_id)
                and visibility.trust_level in (None, session.context.trust_level)
                and visibility.user_id in (None, session.context.user_id or "")
            ):
                yield session

    def _page(
        self,
        by_rank: dict[tuple[int, int], T],
        query: SessionQuery | SearchQuery,
        size: Callable[[T], int] = lambda _: 0,
    ) -> Page[T]:
        """One page of the results, those with the highest rank first."""
        position = decode_cursor(query, self._db.cursor_secret)
        ranks = sorted((rank for rank in by_rank if position is None or rank < position), reverse=True)
        shown = ranks[: count_fitting((size(by_rank[rank]) for rank in ranks), query.limit)]
        cursor = encode_cursor(shown[-1], query, self._db.cursor_secret) if len(ranks) > len(shown) else None
        return Page(items=tuple(by_rank[rank] for rank in shown), cursor=cursor)

    def _texts(self, session: StoredSession) -> dict[str, tuple[int, str]]:
        """The number of the first event and the text of each message, by message id. The title has the id ""."""
        texts = {"": (0, session.title)}
        for stored in self._db.events[session.context.session_id]:
            searchable = searchable_text(stored.event)
            if searchable is not None:
                message_id, text = searchable
                first_seq, earlier = texts.get(message_id, (stored.seq, ""))
                texts[message_id] = (first_seq, earlier + text)
        return texts

    def _number_message(self, session_id: SessionId, message_id: str) -> None:
        """Give a message a number, unless it has one. The title counts as a message with the id ""."""
        if (session_id, message_id) not in self._db.message_numbers:
            self._db.put(self._db.message_numbers, (session_id, message_id), self._db.next_number())

    def _check_writable(self, hold: Hold) -> StoredSession:
        session = self._db.sessions.get(hold.session_id)
        if session is None:
            raise unknown_session(hold.session_id)
        lease = self._db.leases.get(hold.session_id)
        if lease is None or lease.epoch != hold.epoch:
            check_epoch(hold, None if lease is None else lease.epoch)
        return session


def _size(session: StoredSession) -> int:
    return sum(map(len, (session.context.cwd, *session.context.roots, session.title, *session.tags)))
