"""Adds the messages and titles of sessions to the search index of an SQLite store."""

from holdfast.store.event_codec import decode_event
from holdfast.store.search import searchable_text
from holdfast.store.sqlite.database import Database

_TITLE_MESSAGE_ID = ""
_SEARCHABLE = ("prompted", "replied")  # the kinds with a `searchable_text`
_MAX_INDEXED = 1_000_000  # characters of one message that can be searched


def index_session(db: Database, n: int) -> None:
    """Index the messages of session number `n` after its `indexed_seq`. Each is indexed as a whole, because a word may be split over two events."""
    rows = db.execute(
        "SELECT e.seq, e.kind, e.body FROM sessions s JOIN events e ON e.session_n = s.n AND e.seq > s.indexed_seq "
        "WHERE s.n = ? AND e.kind IN (?, ?) ORDER BY e.seq",
        (n, *_SEARCHABLE),
    )
    messages: dict[str, tuple[int, list[str]]] = {}
    sizes: dict[str, int] = {}
    last = 0
    for seq, kind, body in rows:
        last = seq
        indexed = searchable_text(decode_event(kind, body))
        if indexed is None:
            continue
        message_id, text = indexed
        texts = messages.setdefault(message_id, (seq, []))[1]
        # Only the beginning of a very long message is indexed, so that it does not fill the memory.
        if sizes.setdefault(message_id, 0) < _MAX_INDEXED:
            sizes[message_id] += len(text)
            texts.append(text)
    for message_id, (seq, texts) in messages.items():
        earlier = db.execute(
            "SELECT w.text FROM messages m JOIN words w ON w.rowid = m.id WHERE m.session_n = ? AND m.message_id = ?",
            (n, message_id),
        ).fetchone()
        _index_text(db, n, message_id, seq, "".join([*(earlier or ()), *texts])[:_MAX_INDEXED])
    db.execute("UPDATE sessions SET unindexed = 0, indexed_seq = max(indexed_seq, ?) WHERE n = ?", (last, n))


def index_title(db: Database, n: int, title: str) -> None:
    """Index the title of session number `n`, in place of its earlier title."""
    _index_text(db, n, _TITLE_MESSAGE_ID, 0, title)


def _index_text(db: Database, n: int, message_id: str, seq: int, text: str) -> None:
    row = db.execute(
        "SELECT id FROM messages WHERE session_n = ? AND message_id = ?", (n, message_id)
    ).fetchone()
    if row is not None:
        db.execute("UPDATE words SET text = ? WHERE rowid = ?", (text, row[0]))
    elif text:
        (number,) = db.execute(
            "INSERT INTO messages (session_n, message_id, first_seq) VALUES (?, ?, ?) RETURNING id",
            (n, message_id, seq),
        ).fetchone()
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, text))
