"""What is wrong with a store's file, found by reading all of it."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.codec import decode_event
from holdfast.store.database import Database, told
from holdfast.store.sqlreads import SqlReads

MOST = 20


def problems(db: Database, path: Path) -> Iterator[str]:
    """A sentence for everything that does not fit; that something cannot be read is one of them."""
    for look in (_damaged_pages, _lost_rows, _missing_secrets, _damaged_sessions, _gaps, _damaged_events):
        try:
            with told(path, reads=True):
                yield from look(db)
        except HoldfastError as error:
            if error.code is not codes.STORE_CORRUPT:
                raise
            yield f"The file cannot be read to its end: {error.__cause__ or error}."


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
