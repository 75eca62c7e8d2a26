"""Finds damage in a store's file by reading all of it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import UnknownEvent
from holdfast.store.event_codec import decode_event, is_json_object
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.errors import translate_errors
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.schema import migrate, migrations, schema_version

MAX_PROBLEMS = 20


def find_problems(db: Database, path: Path) -> Iterator[str]:
    """A message for each problem, including parts of the file that cannot be read."""
    for check in _CHECKS:
        try:
            with translate_errors(path, reading=True):
                yield from check(db)
        except HoldfastError as error:
            if error.code is not codes.STORE_CORRUPT:
                raise
            yield f"The file cannot be read completely: {str(error.__cause__ or error).rstrip('.')}."


def check_tables(db: Database, path: Path) -> None:
    """Raise if the file has a view or a changed table: a query could run SQL that the author of the file wrote."""
    for problem in table_problems(db):
        raise HoldfastError(codes.STORE_CORRUPT, f"'{path}' is not read: {problem} Nothing was changed.")


def table_problems(db: Database) -> list[str]:
    """A message for each view, and for each table that differs from Holdfast's."""
    actual, expected = _schema(db), _expected_schema(db)
    views = [f"The {name} does not belong in a store." for name in actual if name.startswith("view ")]
    tables = [
        f"The {name} differs from the one that Holdfast creates."
        for name, sql in actual.items()
        if name.startswith("table ") and name in expected and sql != expected[name]
    ]
    return [*views, *tables]


def _schema_problems(db: Database) -> Iterator[str]:
    """A message for each table, index or trigger that is missing, changed or not from Holdfast. A trigger that is not from Holdfast could discard new records."""
    actual, expected = _schema(db), _expected_schema(db)
    for name in sorted({*actual, *expected}):
        if name not in expected:
            yield f"The {name} does not belong in a store."
        elif name not in actual:
            yield f"The {name} is missing."
        elif actual[name] != expected[name]:
            yield f"The {name} differs from the one that Holdfast creates."


def _expected_schema(db: Database) -> dict[str, list[str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new, ":memory:", migrations()[: schema_version(db)])
        return _schema(new)


def _schema(db: Database) -> dict[str, list[str]]:
    """The SQL of each object, by type and name.

    For the tables of the search index, only the beginning is compared: the rest depends on the version of SQLite.
    """
    rows = db.execute(
        "SELECT type || ' ' || name, CASE WHEN name GLOB 'words_*' THEN substr(sql, 1, 12) ELSE sql END "
        "FROM sqlite_schema WHERE sql IS NULL OR sql NOT GLOB 'CREATE TABLE sqlite_stat[14](*' ORDER BY 2"
    )
    sql_by_object: dict[str, list[str]] = {}
    for name, sql in rows:
        sql_by_object.setdefault(str(name), []).append(str(sql))
    return sql_by_object


def _damaged_pages(db: Database) -> Iterator[str]:
    for (finding,) in db.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
        if finding != "ok":
            yield f"The file is damaged: {finding}."


def _orphaned_rows(db: Database) -> Iterator[str]:
    for table, *_ in db.execute("PRAGMA foreign_key_check"):
        yield f"A row of {table} belongs to a missing session."


def _missing_meta_values(db: Database) -> Iterator[str]:
    for name in SqlReadTx(db).missing_meta_values():
        yield f"The store's {name} is missing."


def _wrong_epochs(db: Database) -> Iterator[str]:
    last = db.execute("SELECT last FROM epochs").fetchone()
    if last is None:
        yield "The store's count of epochs is missing."
    elif db.execute("SELECT 1 FROM leases WHERE epoch > ?", last).fetchone():
        yield "A lease has a higher epoch than the store ever gave out."


def _wrong_books(db: Database) -> Iterator[str]:
    (count,) = db.execute("SELECT count(*) FROM audit WHERE book <> 0").fetchone()
    if count:
        yield f"The audit has {count} records in other books. A store in a file has only book 0."


def _damaged_sessions(db: Database) -> Iterator[str]:
    tx = SqlReadTx(db)
    for (session_id,) in db.execute("SELECT session_id FROM sessions"):
        try:
            tx.session(session_id)
        except HoldfastError as error:
            yield error.message


def _event_gaps(db: Database) -> Iterator[str]:
    rows = db.execute(
        "SELECT s.session_id, count(*), max(e.seq) FROM events e JOIN sessions s ON s.n = e.session_n "
        "GROUP BY e.session_n HAVING count(*) <> max(e.seq)"
    )
    for session_id, count, last in rows:
        yield f"The events of {session_id} have gaps: {count} events, but the last is number {last}."


def _damaged_events(db: Database) -> Iterator[str]:
    rows = db.execute(
        "SELECT s.session_id, e.seq, e.kind, e.body FROM events e JOIN sessions s ON s.n = e.session_n"
    )
    for session_id, seq, kind, body in rows:
        try:
            event = decode_event(kind, body)
        except HoldfastError as error:
            yield f"Event {seq} of {session_id}: {error}"
        else:
            # A newer version may have written the event, but every version writes JSON.
            if isinstance(event, UnknownEvent) and not is_json_object(body):
                yield f"Event {seq} of {session_id}: An event of the unknown kind {str(kind)[:80]!r} is damaged."


def _search_index_problems(db: Database) -> Iterator[str]:
    db.execute("SELECT count(*) FROM words").fetchone()
    # This virtual table is in memory only; the file itself is opened for reading.
    db.execute("PRAGMA query_only = OFF")
    db.execute("CREATE VIRTUAL TABLE temp.indexed USING fts5vocab (main, words, instance)")
    db.execute("PRAGMA query_only = ON")
    indexed = {message for (message,) in db.execute("SELECT DISTINCT doc FROM temp.indexed")}
    has_tokens = dict(db.execute("SELECT id, c0 GLOB '*[A-Za-z0-9]*' FROM words_content").fetchall())
    messages = {message for (message,) in db.execute("SELECT id FROM messages")}
    missing = {
        message
        for message in messages
        if message not in has_tokens or (has_tokens[message] and message not in indexed)
    }
    if missing:
        yield f"The search index is damaged: {len(missing)} of {len(messages)} messages are missing."
    if unknown := (indexed | has_tokens.keys()) - messages:
        yield f"The search index is damaged: it has {len(unknown)} unknown messages."


_CHECKS: tuple[Callable[[Database], Iterator[str]], ...] = (
    _schema_problems,
    _damaged_pages,
    _orphaned_rows,
    _missing_meta_values,
    _wrong_epochs,
    _wrong_books,
    _damaged_sessions,
    _event_gaps,
    _damaged_events,
    _search_index_problems,
)
