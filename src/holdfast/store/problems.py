"""What is wrong with a store's file, found by reading all of it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.codec import decode_event
from holdfast.store.database import Database, told
from holdfast.store.schema import migrate, sections
from holdfast.store.sqlreads import SqlReads

MOST = 20


def problems(db: Database, path: Path) -> Iterator[str]:
    """A sentence for everything that does not fit; that something cannot be read is one of them."""
    for look in _LOOKS:
        try:
            with told(path, reads=True):
                yield from look(db)
        except HoldfastError as error:
            if error.code is not codes.STORE_CORRUPT:
                raise
            yield f"The file cannot be read to its end: {error.__cause__ or error}."


def _strangers(db: Database) -> Iterator[str]:
    """A trigger, say, can keep records from being written at all."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new, ":memory:", sections()[:version])
        ours = _schema(new)
    found = _schema(db)
    for name in sorted({*found, *ours}):
        kind = found.get(name, ours.get(name, ("thing", "")))[0]
        if name not in ours:
            yield f"The {kind} {name} does not belong in a store."
        elif name not in found:
            yield f"The {kind} {name} is missing."
        elif found[name] != ours[name]:
            yield f"The {kind} {name} is not as Holdfast makes it."


def _schema(db: Database) -> dict[str, tuple[str, str]]:
    """What there is, by its name: its kind, and the SQL that made it, as far as we wrote that ourselves."""
    rows = db.execute("SELECT name, type, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'")
    return {
        str(name): (str(kind), "" if str(name).startswith("words_") else str(sql)) for name, kind, sql in rows
    }


def _damaged_pages(db: Database) -> Iterator[str]:
    for (finding,) in db.execute(f"PRAGMA integrity_check({MOST})"):
        if finding != "ok":
            yield f"The file is damaged: {finding}."


def _lost_rows(db: Database) -> Iterator[str]:
    for table, *_ in db.execute("PRAGMA foreign_key_check"):
        yield f"A row of {table} belongs to a session that is not there."


def _missing_secrets(db: Database) -> Iterator[str]:
    for name in SqlReads(db).missing_secrets():
        yield f"The store's {name} is missing."


def _damaged_sessions(db: Database) -> Iterator[str]:
    reads = SqlReads(db)
    for (session_id,) in db.execute("SELECT session_id FROM sessions"):
        try:
            reads.session(session_id)
        except HoldfastError as error:
            yield error.message


def _gaps(db: Database) -> Iterator[str]:
    rows = db.execute(
        "SELECT s.session_id, count(*), max(e.seq) FROM events e JOIN sessions s ON s.n = e.session_n "
        "GROUP BY e.session_n HAVING count(*) <> max(e.seq)"
    )
    for session_id, count, last in rows:
        yield f"The events of {session_id} have gaps: {count} are there, and the last is number {last}."


def _damaged_events(db: Database) -> Iterator[str]:
    rows = db.execute(
        "SELECT s.session_id, e.seq, e.kind, e.body FROM events e JOIN sessions s ON s.n = e.session_n"
    )
    for session_id, seq, kind, body in rows:
        try:
            decode_event(kind, body)
        except HoldfastError as error:
            yield f"Event {seq} of {session_id}: {error}"


def _lost_words(db: Database) -> Iterator[str]:
    db.execute("SELECT count(*) FROM words").fetchone()
    # A view of the index that lives in memory only; the file was opened to be read.
    db.execute("PRAGMA query_only = OFF")
    db.execute("CREATE VIRTUAL TABLE temp.indexed USING fts5vocab (main, words, instance)")
    db.execute("PRAGMA query_only = ON")
    indexed = {message for (message,) in db.execute("SELECT DISTINCT doc FROM temp.indexed")}
    kept = dict(db.execute("SELECT id, c0 GLOB '*[A-Za-z0-9]*' FROM words_content").fetchall())
    messages = {message for (message,) in db.execute("SELECT id FROM messages")}
    lost = {
        message for message in messages if message not in kept or (kept[message] and message not in indexed)
    }
    if lost:
        yield f"The search index is damaged: it lacks {len(lost)} of {len(messages)} messages."
    if strange := (indexed | kept.keys()) - messages:
        yield f"The search index is damaged: it has {len(strange)} messages that are not there."


_LOOKS: tuple[Callable[[Database], Iterator[str]], ...] = (
    _strangers,
    _damaged_pages,
    _lost_rows,
    _missing_secrets,
    _damaged_sessions,
    _gaps,
    _damaged_events,
    _lost_words,
)
