"""Attack 32: rows of the audit are edited, deleted, swapped, forged or cut off, in the table or in the file itself."""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import Audit, verify_store
from holdfast.audit.chain import Head, Verdict, genesis, link, verify
from holdfast.cli.app import app
from holdfast.model.errors import HoldfastError
from holdfast.store.database import connect_to_read
from holdfast.store.rows import AuditRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlreads import SqlReads
from tests.audit.records import record

ROWS = 40
ATTACKS = 2000
EDITS = 200


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, Audit(store, FileAnchor.beside(path)) as audit:
        for number in range(ROWS):
            await audit.record(record(number))
    return path


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_two_thousand_random_attacks_on_the_table_are_all_found(database: Path) -> None:
    dice = random.Random(32)
    missed: list[str] = []
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        for number in range(ATTACKS):
            db.execute("BEGIN")
            attack = dice.choice(TABLE_ATTACKS)
            attack(db, dice)
            verdict = verify(_rows(db), _genesis(db), FileAnchor.beside(database).read())
            if verdict.good:
                missed.append(f"{number}: {attack.__name__}")
            db.execute("ROLLBACK")
        untouched = verify(_rows(db), _genesis(db), FileAnchor.beside(database).read())

    assert missed == []
    assert untouched == Verdict(seq=ROWS, anchored=ROWS)


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_a_byte_of_a_record_edited_in_the_file_is_found_whatever_it_became(database: Path) -> None:
    dice = random.Random(32)
    whole = database.read_bytes()
    texts = [place for place in range(len(whole)) if whole.startswith(b'"arguments":null', place)]
    missed: list[str] = []
    for number in range(EDITS):
        at = dice.choice(texts) + dice.randrange(200)
        byte = 0xFF if number % 4 == 0 else dice.choice([other for other in range(256) if other != whole[at]])
        database.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        verified, checked, listed = _runs(database)
        if (verified.exit_code, checked.exit_code) != (
            1,
            1,
        ) or "Tampered with: Record" not in verified.output:
            missed.append(f"{at}: {whole[at]} to {byte}: {verified.output} {checked.output}")
        if not all(map(_is_told, (verified, checked, listed))):
            missed.append(f"{at}: {whole[at]} to {byte}: a traceback")
    database.write_bytes(whole)
    untouched = _runs(database)

    assert missed == []
    assert [done.exit_code for done in untouched] == [0, 0, 0]


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_bytes_edited_anywhere_in_the_file_never_crash_a_command_nor_hide_an_edited_record(
    database: Path,
) -> None:
    dice = random.Random(23)
    whole = database.read_bytes()
    records = _as_kept(database)
    missed: list[str] = []
    for _ in range(EDITS):
        edited = bytearray(whole)
        places = {dice.randrange(len(whole)): dice.randrange(256) for _ in range(dice.choice([1, 1, 20]))}
        for at, byte in places.items():
            edited[at] = byte
        database.write_bytes(edited)
        done = _runs(database)
        if not all(map(_is_told, done)):
            missed.append(f"{places}: a traceback")
        if done[0].exit_code == 0 and _as_kept(database) != records:
            missed.append(f"{places}: all is well")

    assert missed == []


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_an_attacker_who_can_chain_as_we_do_is_found_by_the_anchor(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        _rewrite_from(db, 20)

    verdict = _verdict(database)

    assert (verdict.good, verdict.seq) == (False, ROWS)
    assert "was written anew" in verdict.problem


@pytest.mark.anyio
async def test_control_without_the_anchor_a_cut_and_a_rewritten_chain_pass(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        start = _genesis(db)
        db.execute("DELETE FROM audit WHERE seq > 30")
        assert verify(_rows(db), start, start).good
        _rewrite_from(db, 20)
        assert verify(_rows(db), start, start).good


@pytest.mark.anyio
async def test_control_without_the_chain_an_edit_passes(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        _edit_body(db, random.Random(1))
        count = db.execute("SELECT count(*), max(seq) FROM audit").fetchone()

    assert count == (ROWS, ROWS)


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
@pytest.mark.parametrize(
    "anchor",
    [
        None,
        b"",
        b"{}",
        b"not json",
        b'{"seq":1,"digest":"zz"}',
        b"\xff" * 9000,
        b'{"seq":-5,"digest":"%s"}' % (b"00" * 32),
        b'{"seq":1,"digest":"00"}',
    ],
)
async def test_an_anchor_that_was_removed_or_spoiled_is_found(database: Path, anchor: bytes | None) -> None:
    path = FileAnchor.beside(database).path
    path.unlink()
    if anchor is not None:
        path.write_bytes(anchor)

    assert _verdict(database).problem.startswith("The anchor is missing or unreadable")


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_a_spoiled_anchor_does_not_make_an_emptied_audit_a_new_one(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.beside(database).path.write_bytes(b"")

    verified, checked, _ = _runs(database)

    assert (verified.exit_code, checked.exit_code) == (1, 1)


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_the_rows_and_anchor_of_another_store_do_not_fit(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "holdfast.db"
    async with SqliteStore(other) as store, Audit(store, FileAnchor.beside(other)):
        pass
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.beside(other).path.replace(FileAnchor.beside(database).path)

    assert _verdict(database).problem == "The anchor belongs to another store."


def test_an_anchor_may_lag_behind_and_never_be_ahead() -> None:
    start = genesis(b"store")
    first = link(start, "{}")
    second = link(Head(first.seq, first.digest), "{}")

    assert verify([first, second], start, start) == Verdict(seq=2, anchored=0)
    assert verify([first, second], start, Head(1, first.digest)) == Verdict(seq=2, anchored=1)
    assert verify([first], start, Head(2, second.digest)).problem == (
        "The chain ends at 1, but record 2 was anchored: the end was cut off."
    )


def _edit_body(db: sqlite3.Connection, dice: random.Random) -> None:
    seq = dice.randint(1, ROWS)
    (body,) = db.execute("SELECT body FROM audit WHERE seq = ?", (seq,)).fetchone()
    # A letter inside a word, so that the body stays JSON, as the index on it demands.
    at = dice.choice(
        [place for place, letter in enumerate(body) if letter.isalpha() and body[place - 1].isalpha()]
    )
    edited = body[:at] + ("x" if body[at] != "x" else "y") * dice.randint(0, 2) + body[at + 1 :]
    try:
        json.loads(edited)
    except ValueError:
        edited = body + " "
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (edited, seq))


def _edit_digest(db: sqlite3.Connection, dice: random.Random) -> None:
    seq, bit = dice.randint(1, ROWS), dice.randrange(256)
    (digest,) = db.execute("SELECT digest FROM audit WHERE seq = ?", (seq,)).fetchone()
    changed = (int.from_bytes(digest, "big") ^ (1 << bit)).to_bytes(32, "big")
    db.execute("UPDATE audit SET digest = ? WHERE seq = ?", (changed, seq))


def _delete_some(db: sqlite3.Connection, dice: random.Random) -> None:
    for seq in dice.sample(range(1, ROWS + 1), dice.randint(1, 3)):
        db.execute("DELETE FROM audit WHERE seq = ?", (seq,))


def _delete_and_close_the_gap(db: sqlite3.Connection, dice: random.Random) -> None:
    seq = dice.randint(1, ROWS)
    db.execute("DELETE FROM audit WHERE seq = ?", (seq,))
    for later in range(seq + 1, ROWS + 1):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (later - 1, later))


def _swap(db: sqlite3.Connection, dice: random.Random) -> None:
    first, second = dice.sample(range(1, ROWS + 1), 2)
    for before, after in ((first, 0), (second, first), (0, second)):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (after, before))


def _swap_bodies(db: sqlite3.Connection, dice: random.Random) -> None:
    first, second = dice.sample(range(1, ROWS + 1), 2)
    bodies = dict(db.execute("SELECT seq, body FROM audit WHERE seq IN (?, ?)", (first, second)))
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (bodies[second], first))
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (bodies[first], second))


def _truncate(db: sqlite3.Connection, dice: random.Random) -> None:
    db.execute("DELETE FROM audit WHERE seq > ?", (dice.randint(0, ROWS - 1),))


def _insert(db: sqlite3.Connection, dice: random.Random) -> None:
    at = dice.randint(1, ROWS)
    for seq in range(ROWS, at - 1, -1):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (seq + 1, seq))
    db.execute("INSERT INTO audit (seq, body, digest) VALUES (?, '{}', ?)", (at, dice.randbytes(32)))


def _rewrite(db: sqlite3.Connection, dice: random.Random) -> None:
    _rewrite_from(db, dice.randint(1, ROWS))


def _rewrite_from(db: sqlite3.Connection, seq: int) -> None:
    """Change one record and chain all later ones anew, as somebody who has read our source would."""
    head = _genesis(db)
    for row in list(_rows(db)):
        body = row.body.replace("completed", "denied!") if row.seq == seq else row.body
        anew = link(head, body)
        db.execute("UPDATE audit SET body = ?, digest = ? WHERE seq = ?", (anew.body, anew.digest, anew.seq))
        head = Head(anew.seq, anew.digest)


TABLE_ATTACKS: tuple[Callable[[sqlite3.Connection, random.Random], None], ...] = (
    _edit_body,
    _edit_digest,
    _delete_some,
    _delete_and_close_the_gap,
    _swap,
    _swap_bodies,
    _truncate,
    _insert,
    _rewrite,
)


def _runs(database: Path) -> tuple[Result, Result, Result]:
    """What verify, check and list make of a file."""
    commands = (("audit", "verify"), ("store", "check"), ("audit", "list"))
    verified, checked, listed = (
        CliRunner().invoke(app, [*command, "--path", str(database)]) for command in commands
    )
    return verified, checked, listed


def _is_told(done: Result) -> bool:
    return done.exception is None or isinstance(done.exception, SystemExit | HoldfastError)


def _as_kept(database: Path) -> list[tuple[int, bytes, bytes]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        db.text_factory = bytes
        try:
            return db.execute("SELECT seq, body, digest FROM audit ORDER BY seq").fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return []


def _rows(db: sqlite3.Connection) -> Iterator[AuditRow]:
    return SqlReads(db).audit_rows()


def _genesis(db: sqlite3.Connection) -> Head:
    return genesis(SqlReads(db).store_id())


def _verdict(database: Path) -> Verdict:
    anchor = FileAnchor.beside(database).read()
    db = connect_to_read(database)
    try:
        return verify_store(SqlReads(db), anchor)
    finally:
        db.close()
