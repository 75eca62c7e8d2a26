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
            yield f"The file cannot be read to its end: {str(error.__cause__ or error).rstrip('.')}."


def _strangers(db: Database) -> Iterator[str]:
    """A trigger, say, can keep records from being written at all."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new, ":memory:", sections()[:version])
        ours = _schema(new)
    found = _schema(db)
    for thing in sorted({*found, *ours}):
        if thing not in ours:
            yield f"The {thing} does not belong in a store."
        elif thing not in found:
            yield f"The {thing} is missing."
        elif found[thing] != ours[thing]:
            yield f"The {thing} is not as Holdfast makes it."


def _schema(db: Database) -> dict[str, list[str]]:
    """What there is, by its kind and name, and the SQL that makes it: what SQLite goes by is that alone.

    Of the tables that SQLite itself makes for the search, the SQL may differ between its versions.
    """
    rows = db.execute(
        "SELECT type || ' ' || name, CASE WHEN name GLOB 'words_*' THEN substr(sql, 1, 12) ELSE sql END "
        "FROM sqlite_schema WHERE sql IS NULL OR sql NOT GLOB 'CREATE TABLE sqlite_stat[14](*' ORDER BY 2"
    )
    found: dict[str, list[str]] = {}
    for thing, sql in rows:
        found.setdefault(str(thing), []).append(str(sql))
    return found


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
