"""What can be written to a store, in SQL."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, Titled
from holdfast.model.ids import SessionId
from holdfast.store.clock import from_stored, to_stored
from holdfast.store.codec import decode_event, encode_event
from holdfast.store.database import Database
from holdfast.store.lease import LEASE_MICROSECONDS, check_free, lost
from holdfast.store.owner import this_process
from holdfast.store.projection import PASSING, ends_a_stretch, project
from holdfast.store.rows import Appended, Approval, AuditRow, Lease, NewSession, SessionChange, StoredSession
from holdfast.store.rules import (
    check_change,
    check_new,
    key_reused,
    not_taken,
    once,
    same_session,
    unknown_session,
)
from holdfast.store.sqlreads import SqlReads
from holdfast.store.words import spoken

_TITLE = ""
_LONGEST = 1_000_000  # characters of one message that can be searched
# So many rows to a statement. One of every length may be cached, so there is a single long length: it takes 340 KB.
_MANY_ROWS = 512
_SOME_ROWS = 128


@dataclass(slots=True)
class _Tail:
    """Where a session's log ends, as long as the transaction keeps everybody else from adding to it."""

    n: int
    seq: int
    unindexed: bool


class SqlTx(SqlReads):
    """Writes through one connection, on behalf of one holder of sessions."""

    def __init__(self, db: Database, *, holder: str, now: Callable[[], int]) -> None:
        super().__init__(db)
        self._holder = holder
        self._now = now
        self._held: set[SessionId] = set()
        self._changed: dict[SessionId, bool] = {}
        """Whether a session was taken or let go of last, in the transaction that is not committed yet."""
        self._tails: dict[SessionId, _Tail] = {}
        self._ended: set[int] = set()

    @property
    def has_words(self) -> bool:
        """Whether a stretch of talk has ended and can be indexed when there is time."""
        return bool(self._ended)

    @property
    def holds_any(self) -> bool:
        """Whether a session was taken hold of and not let go."""
        return bool(self._held)

    def index_ended(self) -> None:
        """Index what was said in the stretches that have ended."""
        ended, self._ended = self._ended, set()
        for n in ended:
            self._index(n)

    def mark(self) -> dict[SessionId, bool]:
        """Where the transaction is, to come back to."""
        return dict(self._changed)

    def undone(self, mark: dict[SessionId, bool] | None = None) -> None:
        """The transaction was undone, or part of it, back to where it was marked."""
        self._changed = mark or {}
        self.forget()

    def committed(self) -> None:
        """The transaction is over, and all of it is kept."""
        for session_id, held in self._changed.items():
            (self._held.add if held else self._held.discard)(session_id)
        self._changed.clear()
        self.forget()

    def forget(self) -> None:
        """Look everything up again."""
        self._tails.clear()

    def create(self, new: NewSession) -> StoredSession:
        """Keep a new session; to repeat it after a crash is harmless."""
        context, now = check_new(new).context, self._now()
        stored = self.session(context.session_id)
        if stored is not None:
            return same_session(stored, new)
        row = self._db.execute(
            "INSERT INTO sessions (session_id, workspace_id, trust_level, user_id, parent_session_id, cwd, roots, title, "
            "tags, source, settings, state, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?) "
            "RETURNING n",
            (
                context.session_id, context.workspace_id, context.trust_level, context.user_id,
                context.parent_session_id, context.cwd, _json(context.roots), new.title,
                _json(sorted(set(new.tags))), new.source, _json(new.settings), now, now,
            ),
        ).fetchone()  # fmt: skip
        self._index_text(row[0], _TITLE, 0, new.title)
        return self._stored(context.session_id)

    def change(self, session_id: SessionId, change: SessionChange) -> StoredSession:
        """Change what is kept about a session beside its events."""
        check_change(change)
        tail = self._tail(session_id)
        wanted = {
            "title": change.title,
            "tags": None if change.tags is None else _json(sorted(set(change.tags))),
            "settings": None if change.settings is None else _json(change.settings),
            "cwd": change.cwd,
            "roots": None if change.roots is None else _json(change.roots),
            "updated": self._now(),
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        self._db.execute(
            f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in given)} WHERE n = ?",
            (*given.values(), tail.n),
        )
        if change.title is not None:
            self._index_text(tail.n, _TITLE, 0, change.title)
        return self._stored(session_id)

    def delete(self, session_id: SessionId) -> bool:
        """Forget a session and its events; the audit of what it did stays."""
        if self.session(session_id) is None:
            return False
        n = self._tail(session_id).n
        self._tails.pop(session_id)
        self._changed[session_id] = False
        self._db.execute(
            "DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE session_n = ?)", (n,)
        )
        self._db.execute("DELETE FROM sessions WHERE n = ?", (n,))
        return True

    def append(self, session_id: SessionId, event: Event, key: str | None = None) -> Appended:
        """Add an event at the end of the session's log; a key that is there already adds nothing."""
        tail = self._tail(session_id)
        kind, body = encode_event(event)
        seq, now, given = tail.seq + 1, self._now(), key
        key = key or once(event)
        inserted = self._db.execute(
            "INSERT INTO events (session_n, seq, at, kind, key, body) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session_n, key) WHERE key IS NOT NULL DO NOTHING",
            (tail.n, seq, now, kind, key, body),
        )
        if not inserted.rowcount:
            return self._found(tail.n, session_id, event, key, same=given is not None)
        tail.seq = seq
        if not tail.unindexed and spoken(event) is not None:
            self._db.execute("UPDATE sessions SET unindexed = 1 WHERE n = ?", (tail.n,))
            tail.unindexed = True
        if not isinstance(event, PASSING):
            self._project(session_id, tail, event, now)
        if tail.unindexed and ends_a_stretch(event):
            self._ended.add(tail.n)
        return Appended(seq, new=True)

    def append_many(self, session_id: SessionId, events: Sequence[Event]) -> list[Appended]:
        """Add events that change nothing about the session but its log, many rows to a statement."""
        if any(once(event) for event in events):
            return [self.append(session_id, event) for event in events]
        tail = self._tail(session_id)
        now, first = self._now(), tail.seq + 1
        for some in _portions(events):
            values: list[Any] = []
            for seq, event in enumerate(some, tail.seq + 1):
                values += (tail.n, seq, now, *encode_event(event))
            # One statement: the thread that tells goes on beside it, instead of taking turns row by row.
            rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(some))
            sql = f"INSERT INTO events (session_n, seq, at, kind, body) VALUES {rows}"
            if self._db.execute(sql, values).rowcount != len(some):
                raise not_taken("an event")
            tail.seq += len(some)
        if not tail.unindexed and any(spoken(event) is not None for event in events):
            self._db.execute("UPDATE sessions SET unindexed = 1 WHERE n = ?", (tail.n,))
            tail.unindexed = True
        return [Appended(seq, new=True) for seq in range(first, first + len(events))]

    def index(self) -> None:
        """Bring the search up to the last word that was said."""
        for (n,) in self._all("SELECT n FROM sessions WHERE unindexed"):
            self._index(n)
        self.forget()

    def hold(self, session_id: SessionId) -> Lease:
        """Take hold of a session, or say who has it."""
        now = self._now()
        held = self.lease(session_id)
        if held is not None:
            check_free(held, now)
        self._tails.pop(session_id, None)
        row = self._one("SELECT n FROM sessions WHERE session_id = ?", session_id)
        if row is None:
            raise unknown_session(session_id)
        owner, until = this_process(), now + LEASE_MICROSECONDS
        self._db.execute(
            "INSERT OR REPLACE INTO leases (session_n, holder, machine, boot, namespace, pid, started, until) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row[0],
                self._holder,
                owner.machine,
                owner.boot,
                owner.namespace,
                owner.pid,
                owner.started,
                until,
            ),
        )
        self._changed[session_id] = True
        return Lease(session_id=session_id, holder=self._holder, owner=owner, until=from_stored(until))

    def let_go(self, session_id: SessionId) -> None:
        """Let go of a session; of one that is not ours, nothing happens."""
        self._changed[session_id] = False
        self._db.execute(
            "DELETE FROM leases WHERE holder = ? AND session_n = (SELECT n FROM sessions WHERE session_id = ?)",
            (self._holder, session_id),
        )

    def let_go_of_all(self) -> None:
        """Let go of every session that this holder has."""
        self._db.execute("DELETE FROM leases WHERE holder = ?", (self._holder,))

    def renew(self) -> bool:
        """Hold on to every session that this holder has; says whether there is one."""
        until = self._now() + LEASE_MICROSECONDS
        return (
            self._db.execute("UPDATE leases SET until = ? WHERE holder = ?", (until, self._holder)).rowcount
            > 0
        )

    def approve(self, approval: Approval) -> None:
        """Keep that a person agreed."""
        self._db.execute(
            "INSERT OR REPLACE INTO approvals (what, content_hash, approved_by, at) VALUES (?, ?, ?, ?)",
            (approval.what, approval.content_hash, approval.by, to_stored(approval.at)),
        )

    def revoke(self, what: str) -> int:
        """Forget every approval of this thing."""
        return self._db.execute("DELETE FROM approvals WHERE what = ?", (what,)).rowcount

    def audit_append(self, row: AuditRow) -> None:
        """Add a line to the audit; its place must be the one after the last."""
        head = self._one("SELECT max(seq) FROM audit")[0] or 0
        if row.seq != head + 1:
            raise ValueError(f"The audit's next line is {head + 1}, not {row.seq}.")
        inserted = self._db.execute(
            "INSERT INTO audit (seq, body, digest) VALUES (?, ?, ?)", (row.seq, row.body, row.digest)
        )
        if inserted.rowcount != 1:
            raise not_taken("a record of the audit")

    def _tail(self, session_id: SessionId) -> _Tail:
        tail = self._tails.get(session_id)
        if tail is None:
            row = self._one(
                "SELECT s.n, coalesce((SELECT max(seq) FROM events WHERE session_n = s.n), 0), s.unindexed, l.holder "
                "FROM sessions s LEFT JOIN leases l ON l.session_n = s.n WHERE s.session_id = ?",
                session_id,
            )
            if row is None:
                raise unknown_session(session_id)
            n, seq, unindexed, holder = row
            if holder != self._holder:
                if self._changed.get(session_id, session_id in self._held):
                    raise lost(session_id)
                if holder is not None:
                    self._take_from_the_dead(session_id, n)
            tail = self._tails[session_id] = _Tail(n, seq, bool(unindexed))
        return tail

    def _take_from_the_dead(self, session_id: SessionId, n: int) -> None:
        lease = self.lease(session_id)
        if lease is not None:
            check_free(lease, self._now())
            self._db.execute("DELETE FROM leases WHERE session_n = ?", (n,))

    def _found(self, n: int, session_id: SessionId, event: Event, key: str | None, *, same: bool) -> Appended:
        found = self._one("SELECT seq, kind, body FROM events WHERE session_n = ? AND key = ?", n, key)
        if found is None:
            raise not_taken("an event")
        seq, kind, body = found
        if same and (kind, body) != encode_event(event) and decode_event(kind, body) != event:
            raise key_reused(session_id, str(key), seq)
        return Appended(seq, new=False)

    def _stored(self, session_id: SessionId) -> StoredSession:
        stored = self.session(session_id)
        if stored is None:
            raise unknown_session(session_id)
        return stored

    def _project(self, session_id: SessionId, tail: _Tail, event: Event, now: int) -> None:
        before = self._stored(session_id)
        after = project(before, event, from_stored(now))
        context = after.context
        self._db.execute(
            "UPDATE sessions SET trust_level = ?, cwd = ?, roots = ?, title = ?, state = ?, updated = ?, open_turn = ? "
            "WHERE n = ?",
            (
                context.trust_level,
                context.cwd,
                _json(context.roots),
                after.title,
                after.state,
                to_stored(after.updated),
                after.open_turn,
                tail.n,
            ),
        )
        match event:
            case ServersResolved():
                self._db.execute("UPDATE sessions SET resolved_seq = ? WHERE n = ?", (tail.seq, tail.n))
            case Titled(title=title):
                self._index_text(tail.n, _TITLE, 0, title)
            case _:
                pass

    def _index(self, n: int) -> None:
        """Index what was said since the last time, whole messages each: a word may come in two pieces."""
        rows = self._db.execute(
            "SELECT e.seq, e.kind, e.body FROM sessions s JOIN events e ON e.session_n = s.n AND e.seq > s.indexed_seq "
            "WHERE s.n = ? AND e.kind IN ('Prompted', 'Replied') ORDER BY e.seq",
            (n,),
        )
        said: dict[str, tuple[int, list[str]]] = {}
        sizes: dict[str, int] = {}
        last = 0
        for seq, kind, body in rows:
            last = seq
            words = spoken(decode_event(kind, body))
            if words is None:
                continue
            message_id, text = words
            texts = said.setdefault(message_id, (seq, []))[1]
            # Nobody searches the end of what fills a book; whoever streams without end must not fill the memory.
            if sizes.setdefault(message_id, 0) < _LONGEST:
                sizes[message_id] += len(text)
                texts.append(text)
        for message_id, (seq, texts) in said.items():
            earlier = self._one(
                "SELECT w.text FROM messages m JOIN words w ON w.rowid = m.id WHERE m.session_n = ? AND m.message_id = ?",
                n,
                message_id,
            )
            self._index_text(n, message_id, seq, "".join([*(earlier or ()), *texts])[:_LONGEST])
        self._db.execute(
            "UPDATE sessions SET unindexed = 0, indexed_seq = max(indexed_seq, ?) WHERE n = ?", (last, n)
        )

    def _index_text(self, n: int, message_id: str, seq: int, text: str) -> None:
        row = self._one("SELECT id FROM messages WHERE session_n = ? AND message_id = ?", n, message_id)
        if row is not None:
            self._db.execute("UPDATE words SET text = ? WHERE rowid = ?", (text, row[0]))
        elif text:
            (number,) = self._db.execute(
                "INSERT INTO messages (session_n, message_id, first_seq) VALUES (?, ?, ?) RETURNING id",
                (n, message_id, seq),
            ).fetchone()
            self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, text))


def _portions(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    start = 0
    while left := len(events) - start:
        count = _MANY_ROWS if left >= _MANY_ROWS else min(left, _SOME_ROWS)
        yield events[start : start + count]
        start += count


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError) as error:
        raise HoldfastError(codes.UNSTORABLE, f"This cannot be written down: {error}.") from None
