"""The read transaction of the SQLite store."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ServersResolved, ToolCalled, ToolEnded
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store import clock
from holdfast.store.clock import from_microseconds, to_microseconds
from holdfast.store.constraints import CALLED_PREFIX, ENDED_PREFIX
from holdfast.store.event_codec import decode_event
from holdfast.store.owner import Owner
from holdfast.store.query import (
    SearchQuery,
    SessionQuery,
    Visibility,
    count_fitting,
    decode_cursor,
    encode_cursor,
)
from holdfast.store.search import make_snippet, parse_words
from holdfast.store.sqlite.database import Database
from holdfast.store.types import (
    Approval,
    AuditRow,
    InboxMessage,
    Lease,
    Page,
    SearchHit,
    SessionState,
    StoredEvent,
    StoredSession,
)

_SESSION_COLUMNS = """
    s.session_id, s.workspace_id, s.trust_level, s.user_id, s.parent_session_id, s.cwd, s.roots, s.title, s.tags,
    s.source, s.settings, s.state, s.created, s.updated, s.open_turn,
    coalesce((SELECT max(seq) FROM events WHERE session_n = s.n), 0),
    l.epoch, l.holder, l.until, l.machine, l.boot, l.namespace, l.pid, l.started
"""
_SESSION_TABLES = "sessions s LEFT JOIN leases l ON l.session_n = s.n"
_LAST = "\U0010ffff"  # sorts after every text with the same prefix
# The events of a session's calls. The id of the call is in the event's default key; the body is needed only if it has another key.
_CALLS = (
    "WITH calls AS (SELECT seq, kind, body, CASE WHEN instr(key, ?) = 1 OR instr(key, ?) = 1 THEN key END AS call_key "
    "FROM events WHERE session_n = (SELECT n FROM sessions WHERE session_id = ?) "
    "AND kind IN ('tool_called', 'tool_ended')) "
    "SELECT seq, kind, call_key, CASE WHEN call_key IS NULL THEN body END FROM calls"
)
# If someone edited the file, it may have rows that are not JSON.
_AUDITED_SESSION = "CASE WHEN json_valid(body) THEN json_extract(body, '$.session_id') END"
_UNRECORDED_CALLS = """
    SELECT s.session_id
    FROM (SELECT session_n, count(*) AS ended FROM events WHERE kind = 'tool_ended' GROUP BY session_n) e
    JOIN sessions s ON s.n = e.session_n
    LEFT JOIN (
        SELECT json_extract(body, '$.session_id') AS session_id, count(*) AS recorded FROM audit
        WHERE book = 0 AND json_valid(body) AND json_extract(body, '$.kind') = 'call' GROUP BY 1
    ) a ON a.session_id = s.session_id
    WHERE e.ended > coalesce(a.recorded, 0)
    LIMIT 1
"""
# If someone edited the file, strings may be invalid UTF-8, so they are read as bytes. Values of an unexpected type become NULL.
_SELECT_AUDIT = (
    "SELECT book, seq, CASE typeof(body) WHEN 'text' THEN CAST(body AS BLOB) END, CASE typeof(digest) WHEN 'blob' THEN digest END "
    "FROM audit"
)
# The names in the table `meta`: the secret that signs cursors, and the id of the store. They are created with the file.
_META_NAMES = ("cursor_secret", "store_id")
MAX_EVENTS_BYTES = 512 * 1024
"""A read of events ends after this many bytes, because thousands of large events would need gigabytes of memory."""
_texts = msgspec.json.Decoder(tuple[str, ...])
_object = msgspec.json.Decoder(dict[str, Any])


class SqlReadTx:
    """`ReadTx` on one connection."""

    def __init__(self, db: Database, now: Callable[[], int] = clock.now) -> None:
        self._db = db
        self._now = now
        self._secret: bytes | None = None

    def now(self) -> datetime:
        return from_microseconds(self._now())

    def session(self, session_id: SessionId) -> StoredSession | None:
        row = self._one(
            f"SELECT {_SESSION_COLUMNS} FROM {_SESSION_TABLES} WHERE s.session_id = ?", session_id
        )
        return None if row is None else _session(row, self.now())

    def sessions(self, query: SessionQuery) -> Page[StoredSession]:
        position = decode_cursor(query, self._cursor_secret())
        where = _Where()
        where.add_visibility(query.visibility)
        where.add_equal("s.cwd", query.cwd)
        where.add_equal("s.source", query.source)
        where.add_equal("s.parent_session_id", query.parent)
        where.add_equal("s.state", query.state)
        where.add_tags(query.tags)
        if query.updated_before is not None:
            where.add("s.updated < ?", to_microseconds(query.updated_before))
        if position is not None:
            where.add("(s.updated, s.n) < (?, ?)", *position)
        rows = self._all(
            f"SELECT {_SESSION_COLUMNS}, s.n FROM {_SESSION_TABLES} WHERE {where.sql} ORDER BY s.updated DESC, s.n DESC LIMIT ?",
            *where.values,
            query.limit + 1,
        )
        sizes = (sum(map(len, (row[5], row[6], row[7], row[8]))) for row in rows)  # cwd, roots, title, tags
        page_rows = rows[: count_fitting(sizes, query.limit)]
        more = len(rows) > len(page_rows)
        # The position in the list: updated, n
        cursor = (
            encode_cursor((page_rows[-1][13], page_rows[-1][-1]), query, self._cursor_secret())
            if more
            else None
        )
        now = self.now()
        return Page(items=tuple(_session(row, now) for row in page_rows), cursor=cursor)

    def search(self, query: SearchQuery) -> Page[SearchHit]:
        position = decode_cursor(query, self._cursor_secret())
        phrases = parse_words(query.words)
        where = _Where()
        where.add("words MATCH ?", " AND ".join(f'"{" ".join(phrase)}"' for phrase in phrases))
        where.add_visibility(query.visibility)
        where.add_equal("s.source", query.source)
        where.add_tags(query.tags)
        if position is not None:
            where.add("words.rowid < ?", position[0])
        rows = self._all(
            f"SELECT {_SESSION_COLUMNS}, m.message_id, m.first_seq, words.text, m.id FROM words "
            "CROSS JOIN messages m ON m.id = words.rowid CROSS JOIN sessions s ON s.n = m.session_n "
            f"LEFT JOIN leases l ON l.session_n = s.n WHERE {where.sql} ORDER BY words.rowid DESC LIMIT ?",
            *where.values,
            query.limit + 1,
        )
        page_rows = rows[: query.limit]
        more = len(rows) > query.limit
        cursor = encode_cursor((page_rows[-1][-1], 0), query, self._cursor_secret()) if more else None
        now = self.now()
        hits = (
            SearchHit(
                session=_session(row, now),
                message_id=row[-4],
                seq=row[-3],
                snippet=make_snippet(str(row[-2]), phrases),
            )
            for row in page_rows
        )
        return Page(items=tuple(hits), cursor=cursor)

    def events(self, session_id: SessionId, after: int = 0, limit: int = 1000) -> tuple[StoredEvent, ...]:
        rows = self._db.execute(
            "SELECT seq, at, kind, body, key, agent, parent_call, cause FROM events WHERE session_n = "
            "(SELECT n FROM sessions WHERE session_id = ?) AND seq > ? ORDER BY seq LIMIT ?",
            (session_id, after, limit),
        )
        events: list[StoredEvent] = []
        size = 0
        for seq, at, kind, body, key, agent, parent_call, cause in rows:
            events.append(
                StoredEvent(
                    seq=seq,
                    at_microseconds=at,
                    event=decode_event(kind, body),
                    key=key,
                    agent=agent,
                    parent_call=parent_call,
                    cause=cause,
                )
            )
            size += len(body)
            if size >= MAX_EVENTS_BYTES:
                break
        return tuple(events)

    def resolution(self, session_id: SessionId) -> ServersResolved | None:
        row = self._one(
            "SELECT e.kind, e.body FROM sessions s JOIN events e ON e.session_n = s.n AND e.seq = s.resolved_seq "
            "WHERE s.session_id = ?",
            session_id,
        )
        event = None if row is None else decode_event(*row)
        return event if isinstance(event, ServersResolved) else None

    def open_calls(self, session_id: SessionId) -> tuple[StoredEvent, ...]:
        seq_by_call: dict[str, int] = {}
        for seq, kind, key, body in self._db.execute(
            f"{_CALLS} ORDER BY seq", (CALLED_PREFIX, ENDED_PREFIX, session_id)
        ):
            call_id = _call_id(kind, body) if key is None else key.partition(":")[2]
            if kind == "tool_called":
                seq_by_call[call_id] = seq
            else:
                seq_by_call.pop(call_id, None)
        return tuple(self.events(session_id, seq - 1, 1)[0] for seq in seq_by_call.values())

    def used_servers(self, session_id: SessionId) -> frozenset[str]:
        rows = self._db.execute(
            "WITH own AS MATERIALIZED (SELECT kind, CAST(body AS TEXT) AS body FROM events WHERE session_n = "
            "(SELECT n FROM sessions WHERE session_id = ?) AND kind IN ('tool_called', 'tool_started')) "
            "SELECT DISTINCT json_extract(body, '$.server') FROM own WHERE kind = 'tool_called' AND "
            "json_extract(body, '$.call_id') IN "
            "(SELECT json_extract(body, '$.call_id') FROM own WHERE kind = 'tool_started')",
            (session_id,),
        )
        return frozenset(server for (server,) in rows if isinstance(server, str))

    def stored_bytes(self, session_id: SessionId) -> int:
        (size,) = self._db.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM events WHERE session_n = "
            "(SELECT n FROM sessions WHERE session_id = ?)",
            (session_id,),
        ).fetchone()
        return size

    def lease(self, session_id: SessionId) -> Lease | None:
        row = self._one(
            "SELECT l.epoch, l.holder, l.until, l.machine, l.boot, l.namespace, l.pid, l.started "
            "FROM leases l JOIN sessions s ON s.n = l.session_n WHERE s.session_id = ?",
            session_id,
        )
        return None if row is None else _lease(session_id, row)

    def inbox(
        self, session_id: SessionId, *, only_undelivered: bool = True, limit: int = 100
    ) -> tuple[InboxMessage, ...]:
        sql = (
            "SELECT i.message_id, i.sender, i.sender_title, s.session_id, i.text, i.sent, i.delivered FROM inbox i "
            "JOIN sessions s ON s.n = i.target_n WHERE s.session_id = ?"
        )
        if only_undelivered:
            rows = self._all(f"{sql} AND i.delivered = 0 ORDER BY i.n LIMIT ?", session_id, limit)
        else:
            rows = self._all(f"{sql} ORDER BY i.n DESC LIMIT ?", session_id, limit)[::-1]
        return tuple(
            InboxMessage(
                message_id=message_id,
                sender=SessionId(sender),
                sender_title=sender_title,
                target=SessionId(target),
                text=text,
                sent=from_microseconds(sent),
                delivered=delivered,
            )
            for message_id, sender, sender_title, target, text, sent, delivered in rows
        )

    def sessions_with_messages(self) -> frozenset[SessionId]:
        rows = self._all(
            "SELECT s.session_id FROM leases l JOIN sessions s ON s.n = l.session_n "
            "WHERE EXISTS (SELECT 1 FROM inbox i WHERE i.target_n = l.session_n AND i.delivered = 0)"
        )
        return frozenset(SessionId(session_id) for (session_id,) in rows)

    def approvals(self, prefix: str = "") -> tuple[Approval, ...]:
        rows = self._all(
            "SELECT what, content_hash, approved_by, at FROM approvals WHERE what >= ? AND what < ? "
            "ORDER BY what, at, content_hash",
            prefix,
            prefix + _LAST,
        )
        return tuple(_approval(row) for row in rows)

    def store_id(self) -> bytes:
        return self._meta("store_id")

    def audit_head(self, book: int = 0) -> AuditRow | None:
        row = self._one(f"{_SELECT_AUDIT} WHERE book = ? ORDER BY seq DESC LIMIT 1", book)
        return None if row is None else _audit(row)

    def audit_row(self, seq: int, book: int = 0) -> AuditRow | None:
        row = self._one(f"{_SELECT_AUDIT} WHERE book = ? AND seq = ?", book, seq)
        return None if row is None else _audit(row)

    def session_with_unrecorded_calls(self) -> SessionId | None:
        row = self._one(_UNRECORDED_CALLS)
        return None if row is None else SessionId(row[0])

    def audit_rows(
        self, after: int = 0, session_id: SessionId | None = None, book: int = 0
    ) -> Iterator[AuditRow]:
        where = "book = ? AND seq > ?"
        values: tuple[Any, ...] = (book, after)
        if session_id is not None:
            # `instr` is faster than reading the JSON of every row.
            where += f" AND instr(body, ?) AND {_AUDITED_SESSION} = ?"
            values += (session_id, session_id)
        for row in self._db.execute(f"{_SELECT_AUDIT} WHERE {where} ORDER BY seq", values):
            yield _audit(row)

    def _cursor_secret(self) -> bytes:
        if self._secret is None:
            self._secret = self._meta("cursor_secret")
        return self._secret

    def missing_meta_values(self) -> tuple[str, ...]:
        """The names whose values are missing in the table `meta`."""
        values = dict(self._all("SELECT name, value FROM meta"))
        return tuple(name for name in _META_NAMES if not isinstance(values.get(name), bytes))

    def _meta(self, name: str) -> bytes:
        match self._one("SELECT value FROM meta WHERE name = ?", name):
            case (bytes() as value,):
                return value
            case _:
                raise HoldfastError(codes.STORE_CORRUPT, f"The store is damaged: its {name} is missing.")

    def _one(self, sql: str, *values: Any) -> Any:
        return self._db.execute(sql, values).fetchone()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self._db.execute(sql, values).fetchall()


class _Where:
    """A WHERE clause: conditions joined with AND, and their values."""

    def __init__(self) -> None:
        self._conditions = ["TRUE"]
        self.values: list[Any] = []

    @property
    def sql(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self.values.extend(values)

    def add_equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = ?", value)

    def add_visibility(self, visibility: Visibility) -> None:
        self.add_equal("s.workspace_id", visibility.workspace_id)
        self.add_equal("s.trust_level", visibility.trust_level)
        if visibility.user_id == "":
            self.add("s.user_id IS NULL")
        else:
            self.add_equal("s.user_id", visibility.user_id)

    def add_tags(self, tags: tuple[str, ...]) -> None:
        for tag in tags:
            self.add("EXISTS (SELECT 1 FROM json_each(s.tags) WHERE value = ?)", tag)


def _session(row: Any, now: datetime) -> StoredSession:
    try:
        return _decode_session(row, now)
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        raise HoldfastError(
            codes.STORE_CORRUPT, f"The row of session {row[0]} is damaged: {error}."
        ) from error


def _decode_session(row: Any, now: datetime) -> StoredSession:
    context = SessionContext(
        session_id=SessionId(row[0]),
        workspace_id=row[1],
        trust_level=Trust(row[2]),
        user_id=row[3],
        parent_session_id=row[4],
        cwd=row[5],
        roots=_texts.decode(row[6]),
    )
    return StoredSession(
        context=context,
        title=row[7],
        tags=_texts.decode(row[8]),
        source=row[9],
        settings=_object.decode(row[10]),
        state=SessionState(row[11]),
        created=from_microseconds(row[12]),
        updated=from_microseconds(row[13]),
        open_turn=row[14],
        last_seq=row[15],
        lease=None if row[16] is None else _lease(context.session_id, row[16:24]),
        read_at=now,
    )


def _lease(session_id: SessionId, row: Any) -> Lease:
    epoch, holder, until, machine, boot, namespace, pid, started = row
    owner = Owner(machine=machine, boot=boot, namespace=namespace, pid=pid, started=started)
    return Lease(
        session_id=session_id, epoch=epoch, holder_id=holder, owner=owner, expires_at=from_microseconds(until)
    )


def _call_id(kind: str, body: bytes) -> str:
    match decode_event(kind, body):
        case ToolCalled(call_id=call_id) | ToolEnded(call_id=call_id):
            return call_id
        case _:
            return ""


def _approval(row: Any) -> Approval:
    return Approval(key=row[0], content_hash=row[1], by=row[2], at=from_microseconds(row[3]))


def _audit(row: Any) -> AuditRow:
    book, seq, body, digest = row
    text = (body or b"").decode("utf-8", "surrogateescape")
    return AuditRow(book=book, seq=seq, body=text, digest=digest or b"")
