"""The write transaction of the SQLite store."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    MAIN_AGENT_ORIGIN,
    Event,
    HistoryCompacted,
    MessageReceived,
    MessageSent,
    ModeChanged,
    ModelResponded,
    Origin,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.ids import SessionId
from holdfast.store.clock import from_microseconds, to_microseconds
from holdfast.store.constraints import (
    check_change,
    check_new,
    check_same_session,
    default_key,
    insert_discarded,
    key_reused,
    unknown_session,
)
from holdfast.store.event_codec import decode_event, encode_event
from holdfast.store.lease import check_epoch, check_free
from holdfast.store.owner import Owner
from holdfast.store.projection import EVENTS_OF_CALLS, changes_session, completes_messages, is_activity
from holdfast.store.search import searchable_text
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.search_index import index_session, index_title
from holdfast.store.store import MAX_UNDELIVERED
from holdfast.store.types import (
    AppendResult,
    Approval,
    AuditRow,
    Hold,
    InboxMessage,
    NewSession,
    SessionChange,
    SessionState,
    StoredSession,
)

# Trust is never raised.
_LOWER_TRUST = "trust_level = CASE trust_level WHEN 'sandboxed' THEN trust_level ELSE ? END"
# Rows per INSERT. SQLite caches a statement for each number of rows, and a statement with many rows takes much memory. So a
# batch has either `_LARGE_BATCH` rows, or at most `_SMALL_BATCH`.
_LARGE_BATCH = 512
_SMALL_BATCH = 128
# How much of a large session is deleted at a time, so that other writes do not wait long.
_DELETED_BYTES = 1024 * 1024
_DELETED_ROWS = 500
_IGNORE_KNOWN_KEY = "ON CONFLICT (session_n, key) WHERE key IS NOT NULL DO NOTHING"
_INSERT_EVENT = (
    f"INSERT INTO events (session_n, seq, at, kind, key, body) VALUES (?, ?, ?, ?, ?, ?) {_IGNORE_KNOWN_KEY}"
)
_INSERT_EVENT_OF_AGENT = (
    "INSERT INTO events (session_n, seq, at, kind, key, body, agent, parent_call, cause) "
    f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) {_IGNORE_KNOWN_KEY}"
)
_MAX_CACHED_POSITIONS = 10_000  # sessions whose position is kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One open store, as its leases identify it."""

    id: str
    """A random id; one process may have several stores open."""
    owner: Owner
    lease_duration: timedelta
    """How long its leases last after each renewal."""


@dataclass(slots=True)
class _AppendPosition:
    """What must be known to append to a session."""

    n: int
    """The session's number in the table `sessions`."""
    seq: int
    """The number of the last event; 0 if there is none."""
    unindexed: bool
    """Whether the session has messages that are not in the search index."""
    epoch: int | None
    """The epoch of the hold on the session; None if no store holds it."""


class SqlTx(SqlReadTx):
    """`Tx` on one connection, with the leases of one store."""

    def __init__(self, db: Database, holder: Holder, now: Callable[[], int]) -> None:
        super().__init__(db, now)
        self._holder = holder
        self._held: set[SessionId] = set()
        """The sessions that this store holds."""
        self._lease_changes: dict[SessionId, bool] = {}
        """Sessions acquired (True) or released (False) in the current transaction."""
        # A cache of what was read. The cache is valid within a transaction, which locks the database, and in the next transaction
        # if no other connection has written in between.
        self._positions: dict[SessionId, _AppendPosition] = {}
        self._audit_heads: dict[int, AuditRow] = {}
        self._data_version = 0
        self._is_in_transaction = False
        self._last_epoch = 0
        self._to_index: dict[int, SessionId] = {}
        """The sessions with complete messages to index, by their number."""

    @property
    def has_unindexed_messages(self) -> bool:
        """Whether complete messages are waiting to be indexed."""
        return bool(self._to_index)

    @property
    def holds_leases(self) -> bool:
        return bool(self._held)

    def index_complete_messages(self) -> None:
        """Index the messages of sessions whose turn has ended, or that were closed."""
        to_index, self._to_index = self._to_index, {}
        for n, session_id in to_index.items():
            index_session(self._db, n)
            if (position := self._positions.get(session_id)) is not None:
                position.unindexed = False

    def on_begin(self) -> None:
        """Clear the cache if another connection has written. Call this at the beginning of a transaction."""
        version = self._one("PRAGMA data_version")[0]
        if version != self._data_version or len(self._positions) > _MAX_CACHED_POSITIONS:
            self.clear_cache()
            self._data_version = version
        self._is_in_transaction = True

    def savepoint_state(self) -> dict[SessionId, bool]:
        """What to pass to `on_rollback` if the savepoint is rolled back."""
        return dict(self._lease_changes)

    def on_rollback(self, state: dict[SessionId, bool] | None = None) -> None:
        """Undo the lease changes of the transaction, or those since the savepoint with this state."""
        self._lease_changes = state or {}
        self._is_in_transaction = state is not None
        self.clear_cache()

    def on_commit(self) -> None:
        """Apply the lease changes of the transaction."""
        for session_id, held in self._lease_changes.items():
            (self._held.add if held else self._held.discard)(session_id)
        self._lease_changes.clear()
        self._is_in_transaction = False

    def clear_cache(self) -> None:
        self._positions.clear()
        self._audit_heads.clear()

    def create(self, new: NewSession) -> StoredSession:
        context, now, tags = check_new(new).context, self._now(), sorted(set(new.tags))
        row = self._db.execute(
            "INSERT INTO sessions (session_id, workspace_id, trust_level, user_id, parent_session_id, cwd, roots, title, "
            "tags, source, settings, state, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?) "
            "ON CONFLICT (session_id) DO NOTHING RETURNING n",
            (
                context.session_id, context.workspace_id, context.trust_level, context.user_id,
                context.parent_session_id, context.cwd, _json(context.roots), new.title,
                _json(tags), new.source, _json(new.settings), now, now,
            ),
        ).fetchone()  # fmt: skip
        if row is None:
            return check_same_session(self._existing_session(context.session_id), new)
        self._positions[context.session_id] = _AppendPosition(row[0], seq=0, unindexed=False, epoch=None)
        if new.title:
            index_title(self._db, row[0], new.title)
        created = from_microseconds(now)
        return StoredSession(
            context=context,
            title=new.title,
            tags=tuple(tags),
            source=new.source,
            settings=dict(new.settings),
            state=SessionState.OPEN,
            created=created,
            updated=created,
            last_seq=0,
            open_turn="",
            read_at=created,
        )

    def change(self, hold: Hold, change: SessionChange) -> StoredSession:
        check_change(change)
        position = self._checked_position(hold)
        wanted = {
            "title": change.title,
            "tags": None if change.tags is None else _json(sorted(set(change.tags))),
            "settings": None if change.settings is None else _json(change.settings),
            "cwd": change.cwd,
            "roots": None if change.roots is None else _json(change.roots),
            "updated": self._now(),
        }
        changed_columns = {column: value for column, value in wanted.items() if value is not None}
        self._db.execute(
            f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in changed_columns)} WHERE n = ?",
            (*changed_columns.values(), position.n),
        )
        if change.title is not None:
            index_title(self._db, position.n, change.title)
        return self._existing_session(hold.session_id)

    def delete(self, hold: Hold) -> None:
        n = self._checked_position(hold).n
        self._positions.pop(hold.session_id)
        self._lease_changes[hold.session_id] = False
        self._db.execute(
            "DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE session_n = ?)", (n,)
        )
        self._db.execute("DELETE FROM sessions WHERE n = ?", (n,))

    def delete_part(self, hold: Hold) -> bool:
        """Delete about `_DELETED_BYTES` of the session: first its messages in the search index, then its last events."""
        n = self._checked_position(hold).n
        texts = self._all(
            "SELECT m.id, length(w.text) FROM messages m JOIN words w ON w.rowid = m.id WHERE m.session_n = ? LIMIT ?",
            n,
            _DELETED_ROWS,
        )
        ids, bytes_left = _take(texts, _DELETED_BYTES)
        if ids:
            placeholders = ", ".join("?" * len(ids))
            self._db.execute(f"DELETE FROM words WHERE rowid IN ({placeholders})", ids)
            self._db.execute(f"DELETE FROM messages WHERE id IN ({placeholders})", ids)
        if len(ids) < len(texts) or bytes_left <= 0:
            return True
        bodies = self._all(
            "SELECT seq, length(body) FROM events WHERE session_n = ? ORDER BY seq DESC LIMIT ?",
            n,
            _DELETED_ROWS,
        )
        seqs, _ = _take(bodies, bytes_left)
        if not seqs:
            return False
        self._db.execute("DELETE FROM events WHERE session_n = ? AND seq >= ?", (n, seqs[-1]))
        self._positions.pop(hold.session_id)
        return self._one("SELECT 1 FROM events WHERE session_n = ? LIMIT 1", n) is not None

    def append(
        self, hold: Hold, event: Event, key: str | None = None, origin: Origin = MAIN_AGENT_ORIGIN
    ) -> AppendResult:
        position = self._checked_position(hold)
        kind, body = encode_event(event)
        seq, now, given_key = position.seq + 1, self._now(), key
        key = key or default_key(event)
        # A bytearray, because sqlite3 looks for an adapter for bytes, which takes longer than this copy.
        values = (position.n, seq, now, kind, key, bytearray(body))
        inserted = (
            self._db.execute(_INSERT_EVENT, values)
            if origin is MAIN_AGENT_ORIGIN
            else self._db.execute(
                _INSERT_EVENT_OF_AGENT, (*values, origin.agent, origin.parent_call, origin.cause)
            )
        )
        if not inserted.rowcount:
            return self._existing_event(
                position.n, hold.session_id, event, key, check_content=given_key is not None
            )
        position.seq = seq
        if isinstance(event, EVENTS_OF_CALLS):
            return AppendResult(seq, is_new=True, at_microseconds=now, size=len(body))
        if not position.unindexed and searchable_text(event) is not None:
            self._db.execute("UPDATE sessions SET unindexed = 1 WHERE n = ?", (position.n,))
            position.unindexed = True
        if changes_session(event, origin):
            self._project(position, event, now)
        if position.unindexed and completes_messages(event):
            self._to_index[position.n] = hold.session_id
        return AppendResult(seq, is_new=True, at_microseconds=now, size=len(body))

    def append_many(
        self, hold: Hold, events: Sequence[Event], origin: Origin = MAIN_AGENT_ORIGIN
    ) -> list[AppendResult]:
        if any(default_key(event) for event in events):
            return [self.append(hold, event, origin=origin) for event in events]
        position = self._checked_position(hold)
        now, first = self._now(), position.seq + 1
        columns, shared = "session_n, seq, at, kind, body", ()
        if origin is not MAIN_AGENT_ORIGIN:
            columns += ", agent, parent_call, cause"
            shared = (origin.agent, origin.parent_call, origin.cause)
        row = f"({', '.join('?' * (5 + len(shared)))})"
        sizes: list[int] = []
        for batch in _batches(events):
            values: list[Any] = []
            for seq, event in enumerate(batch, position.seq + 1):
                kind, body = encode_event(event)
                sizes.append(len(body))
                values += (position.n, seq, now, kind, body, *shared)
            # One statement: it releases the GIL once, so that the event loop runs while it inserts.
            sql = f"INSERT INTO events ({columns}) VALUES {', '.join([row] * len(batch))}"
            if self._db.execute(sql, values).rowcount != len(batch):
                raise insert_discarded("an event")
            position.seq += len(batch)
        if not position.unindexed and any(searchable_text(event) is not None for event in events):
            self._db.execute("UPDATE sessions SET unindexed = 1 WHERE n = ?", (position.n,))
            position.unindexed = True
        return [
            AppendResult(seq, is_new=True, at_microseconds=now, size=size)
            for seq, size in enumerate(sizes, first)
        ]

    def send(self, hold: Hold, message: InboxMessage) -> bool:
        inserted = self._db.execute(
            "INSERT INTO inbox (message_id, target_n, sender, sender_title, text, sent) "
            "SELECT ?, t.n, s.session_id, ?, ?, ? FROM sessions s JOIN sessions t ON t.workspace_id = s.workspace_id "
            "AND t.user_id IS s.user_id AND t.n <> s.n WHERE s.n = ? AND t.session_id = ? AND s.workspace_id <> '' "
            "AND (s.trust_level = 'direct' OR t.trust_level = 'sandboxed') "
            "AND (SELECT count(*) FROM inbox WHERE target_n = t.n AND delivered = 0) < ?",
            (
                message.message_id, message.sender_title, message.text, self._now(), self._checked_position(hold).n,
                message.target, MAX_UNDELIVERED,
            ),
        )  # fmt: skip
        return inserted.rowcount > 0

    def deliver(self, hold: Hold, message_id: str) -> bool:
        position = self._checked_position(hold)
        updated = self._db.execute(
            "UPDATE inbox SET delivered = ? WHERE message_id = ? AND target_n = ? AND delivered = 0",
            (position.seq, message_id, position.n),
        )
        return updated.rowcount > 0

    def index_messages(self) -> None:
        for (n,) in self._all("SELECT n FROM sessions WHERE unindexed"):
            index_session(self._db, n)
        self.clear_cache()

    def acquire(self, session_id: SessionId) -> Hold:
        position, now = self._find_position(session_id), self.now()
        if position.epoch is not None and (held := self.lease(session_id)) is not None:
            check_free(held, now)
        epoch, owner = self._next_epoch(), self._holder.owner
        self._db.execute(
            "INSERT OR REPLACE INTO leases (session_n, epoch, holder, machine, boot, namespace, pid, started, until) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                position.n, epoch, self._holder.id, owner.machine, owner.boot, owner.namespace, owner.pid, owner.started,
                to_microseconds(now + self._holder.lease_duration),
            ),
        )  # fmt: skip
        position.epoch = epoch
        self._lease_changes[session_id] = True
        return Hold(session_id, epoch)

    def check_hold(self, hold: Hold) -> None:
        self._checked_position(hold)

    def release(self, hold: Hold) -> None:
        released = self._db.execute(
            "DELETE FROM leases WHERE epoch = ? AND session_n = (SELECT n FROM sessions WHERE session_id = ?)",
            (hold.epoch, hold.session_id),
        )
        if released.rowcount:
            self._positions.pop(hold.session_id, None)
            self._lease_changes[hold.session_id] = False

    def release_all(self) -> None:
        self._db.execute("DELETE FROM leases WHERE holder = ?", (self._holder.id,))
        self._positions.clear()

    def renew(self) -> bool:
        """Renew all leases of this store. False if there is none."""
        until = to_microseconds(self.now() + self._holder.lease_duration)
        renewed = self._db.execute("UPDATE leases SET until = ? WHERE holder = ?", (until, self._holder.id))
        return renewed.rowcount > 0

    def approve(self, approval: Approval) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO approvals (what, content_hash, approved_by, at) VALUES (?, ?, ?, ?)",
            (approval.key, approval.content_hash, approval.by, to_microseconds(approval.at)),
        )

    def remove_approvals(self, prefix: str) -> None:
        for approval in self.approvals(prefix):
            self._db.execute(
                "DELETE FROM approvals WHERE what = ? AND content_hash = ?",
                (approval.key, approval.content_hash),
            )

    def audit_head(self, book: int = 0) -> AuditRow | None:
        if not self._is_in_transaction:  # another process may have appended a row
            return super().audit_head(book)
        head = self._audit_heads.get(book)
        if head is None and (head := super().audit_head(book)) is not None:
            self._audit_heads[book] = head
        return head

    def audit_append(self, row: AuditRow) -> None:
        head = self.audit_head(row.book)
        expected = 1 if head is None else head.seq + 1
        if row.seq != expected:
            raise ValueError(f"The audit's next row is {expected}, not {row.seq}.")
        inserted = self._db.execute(
            "INSERT INTO audit (book, seq, body, digest) VALUES (?, ?, ?, ?)",
            (row.book, row.seq, row.body, bytearray(row.digest)),
        )
        if inserted.rowcount != 1:
            raise insert_discarded("an audit record")
        self._audit_heads[row.book] = row

    def _checked_position(self, hold: Hold) -> _AppendPosition:
        """The position of the held session. Raise if the hold has ended."""
        position = self._positions.get(hold.session_id) or self._find_position(hold.session_id)
        if position.epoch != hold.epoch:
            check_epoch(hold, position.epoch)
        return position

    def _find_position(self, session_id: SessionId) -> _AppendPosition:
        if (position := self._positions.get(session_id)) is not None:
            return position
        row = self._one(
            "SELECT s.n, coalesce((SELECT max(seq) FROM events WHERE session_n = s.n), 0), s.unindexed, l.epoch "
            "FROM sessions s LEFT JOIN leases l ON l.session_n = s.n WHERE s.session_id = ?",
            session_id,
        )
        if row is None:
            raise unknown_session(session_id)
        n, seq, unindexed, epoch = row
        position = self._positions[session_id] = _AppendPosition(n, seq, bool(unindexed), epoch)
        return position

    def _next_epoch(self) -> int:
        # Higher than the epochs of transactions that were rolled back, too: their holds must never become valid.
        row = self._db.execute(
            "UPDATE epochs SET last = max(last, ?) + 1 RETURNING last", (self._last_epoch,)
        ).fetchone()
        if row is None:
            raise HoldfastError(codes.STORE_CORRUPT, "The store is damaged: its count of epochs is missing.")
        self._last_epoch = int(row[0])
        return self._last_epoch

    def _existing_event(
        self, n: int, session_id: SessionId, event: Event, key: str | None, *, check_content: bool
    ) -> AppendResult:
        row = self._one("SELECT seq, kind, body, at FROM events WHERE session_n = ? AND key = ?", n, key)
        if row is None:
            raise insert_discarded("an event")
        seq, kind, body, at = row
        if check_content and (kind, body) != encode_event(event) and decode_event(kind, body) != event:
            raise key_reused(session_id, str(key), seq)
        return AppendResult(seq, is_new=False, at_microseconds=at)

    def _existing_session(self, session_id: SessionId) -> StoredSession:
        stored = self.session(session_id)
        if stored is None:
            raise unknown_session(session_id)
        return stored

    def _project(self, position: _AppendPosition, event: Event, now: int) -> None:
        """Change the session's row like `projection.project`, but without reading the row."""
        changes: dict[str, object] = {"updated = ?": now} if is_activity(event) else {}
        match event:
            case SessionOpened(cwd=cwd, roots=roots, trust_level=trust):
                changes |= {
                    _LOWER_TRUST: trust,
                    "cwd = ?": cwd,
                    "roots = ?": _json(roots),
                    "state = ?": SessionState.OPEN,
                }
            case SessionClosed():
                changes["state = ?"] = SessionState.CLOSED
            case TrustLowered(trust_level=trust):
                changes[_LOWER_TRUST] = trust
            case Titled(title=title):
                changes["title = ?"] = title
                index_title(self._db, position.n, title)
            case Prompted(turn_id=turn_id) | MessageReceived(turn_id=turn_id):
                changes["open_turn = ?"] = turn_id
            case TurnEnded(turn_id=turn_id):
                changes["open_turn = CASE open_turn WHEN ? THEN '' ELSE open_turn END"] = turn_id
            case ServersResolved():
                changes["resolved_seq = ?"] = position.seq
            case (
                ModeChanged()
                | Replied()
                | Thought()
                | Planned()
                | ToolCalled()
                | ModelResponded()
                | HistoryCompacted()
                | ToolStarted()
                | ToolEnded()
                | PermissionDecided()
                | MessageSent()
                | UnknownEvent()
            ):
                pass
        if changes:
            self._db.execute(
                f"UPDATE sessions SET {', '.join(changes)} WHERE n = ?", (*changes.values(), position.n)
            )


def _take(rows: Sequence[tuple[int, int]], size: int) -> tuple[list[int], int]:
    """The ids of the first rows, until the sum of their sizes reaches `size`; and what is left of `size`. Each row is an id and a size."""
    taken: list[int] = []
    for row_id, row_size in rows:
        if size <= 0:
            break
        taken.append(row_id)
        size -= row_size
    return taken, size


def _batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    start = 0
    while left := len(events) - start:
        count = _LARGE_BATCH if left >= _LARGE_BATCH else min(left, _SMALL_BATCH)
        yield events[start : start + count]
        start += count


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError) as error:
        raise HoldfastError(codes.UNSTORABLE, f"This value cannot be encoded: {error}.") from None
