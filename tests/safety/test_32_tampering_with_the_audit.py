"""Attack 32: edit, delete, swap, forge or truncate audit rows, in the table or in the file."""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.audit.audit import Audit, verify_store
from holdfast.audit.chain import Head, Verdict, empty_chain_head, next_row, verify
from holdfast.cli.app import app
from holdfast.model.errors import HoldfastError
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.sqlite.database import connect_readonly
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.types import AuditRow
from tests.audit.records import record
from tests.cli.test_servers import Environment
from tests.connect.conftest import HostFactory, make_host
from tests.safety.repeats import REPEATS

__all__ = ["make_host"]

ROWS = 40
ATTACKS = 2000
EDITS = 50 * REPEATS


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store, Audit(store) as audit:
        for number in range(ROWS):
            await audit.write(record(number))
    return path


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_two_thousand_random_changes_to_the_table_are_all_found(database: Path) -> None:
    rng = random.Random(32)
    missed: list[str] = []
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        for number in range(ATTACKS):
            db.execute("BEGIN")
            attack = rng.choice(TABLE_ATTACKS)
            attack(db, rng)
            verdict = verify(_rows(db), _genesis(db), FileAnchor.for_database(database).read())
            if verdict.is_intact:
                missed.append(f"{number}: {attack.__name__}")
            db.execute("ROLLBACK")
        untouched = verify(_rows(db), _genesis(db), FileAnchor.for_database(database).read())

    assert missed == []
    assert untouched == Verdict(seq=ROWS, anchored_seq=ROWS)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_every_edited_byte_of_a_record_is_found(database: Path) -> None:
    rng = random.Random(32)
    original = database.read_bytes()
    texts = [offset for offset in range(len(original)) if original.startswith(b'"arguments":null', offset)]
    missed: list[str] = []
    for number in range(EDITS):
        at = rng.choice(texts) + rng.randrange(200)
        byte = (
            0xFF if number % 4 == 0 else rng.choice([other for other in range(256) if other != original[at]])
        )
        database.write_bytes(original[:at] + bytes([byte]) + original[at + 1 :])
        verified, checked, listed = _run_commands(database)
        if (verified.exit_code, checked.exit_code) != (
            1,
            1,
        ) or "Tampered with: Record" not in verified.output:
            missed.append(f"{at}: {original[at]} to {byte}: {verified.output} {checked.output}")
        if not all(map(_has_no_traceback, (verified, checked, listed))):
            missed.append(f"{at}: {original[at]} to {byte}: a traceback")
    database.write_bytes(original)
    untouched = _run_commands(database)

    assert missed == []
    assert [done.exit_code for done in untouched] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_edited_bytes_anywhere_never_crash_a_command_or_hide_an_edited_record(
    database: Path,
) -> None:
    rng = random.Random(23)
    original = database.read_bytes()
    records = _raw_rows(database)
    missed: list[str] = []
    for _ in range(EDITS):
        edited = bytearray(original)
        edits = {rng.randrange(len(original)): rng.randrange(256) for _ in range(rng.choice([1, 1, 20]))}
        for at, byte in edits.items():
            edited[at] = byte
        database.write_bytes(edited)
        done = _run_commands(database)
        if not all(map(_has_no_traceback, done)):
            missed.append(f"{edits}: a traceback")
        if done[0].exit_code == 0 and _raw_rows(database) != records:
            missed.append(f"{edits}: not found")

    assert missed == []


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_recomputed_chain_is_found_by_the_anchor(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        _rewrite_from(db, 20)

    verdict = _verdict(database)

    assert (verdict.is_intact, verdict.seq) == (False, ROWS)
    assert "was rewritten" in verdict.problem


@pytest.mark.anyio
async def test_control_without_the_anchor_a_truncated_or_recomputed_chain_passes(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        start = _genesis(db)
        db.execute("DELETE FROM audit WHERE seq > 30")
        assert verify(_rows(db), start, start).is_intact
        _rewrite_from(db, 20)
        assert verify(_rows(db), start, start).is_intact


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
async def test_removed_or_damaged_anchor_is_found(database: Path, anchor: bytes | None) -> None:
    path = FileAnchor.for_database(database).path
    path.unlink()
    if anchor is not None:
        path.write_bytes(anchor)

    assert _verdict(database).summary.startswith(
        "The audit cannot be verified: The anchor is missing or unreadable"
    )


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_emptied_audit_with_a_damaged_anchor_is_found(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.for_database(database).path.write_bytes(b"")

    verified, checked, _ = _run_commands(database)

    assert (verified.exit_code, checked.exit_code) == (1, 1)


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_rows_and_anchor_of_another_store_are_found(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "holdfast.db"
    async with SqliteStore(other) as store, Audit(store):
        pass
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.for_database(other).path.replace(FileAnchor.for_database(database).path)

    assert _verdict(database).problem == "The anchor belongs to another store."


@pytest.mark.anyio
@pytest.mark.promise("AUD-05")
@pytest.mark.parametrize("opened_again", [False, True])
async def test_rows_and_anchor_removed_together_are_found_by_the_stored_events(
    make_host: HostFactory, tmp_path: Path, *, opened_again: bool
) -> None:
    used = await _use_a_session(make_host, tmp_path)
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.for_database(used).path.unlink()
    if opened_again:  # a host writes a new anchor for an empty audit
        async with make_host({}, durable=True):
            pass

    verified, checked, _ = _run_commands(used)

    assert (verified.exit_code, checked.exit_code) == (1, 1)
    assert "has calls without a record" in verified.output


@pytest.mark.anyio
@pytest.mark.promise("AUD-05")
async def test_older_copy_of_rows_and_anchor_is_found_by_events_or_by_a_known_head(
    make_host: HostFactory, tmp_path: Path
) -> None:
    used = await _use_a_session(make_host, tmp_path)
    older, anchor = used.read_bytes(), FileAnchor.for_database(used).path.read_bytes()
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        rows = db.execute("SELECT count(*) FROM audit").fetchone()[0]
    await _use_a_session(make_host, tmp_path)
    head = json.loads(_audit(used, "verify", "--json").output)["head"]

    # Only the audit is rolled back: the events of the second session contradict it.
    newer = used.read_bytes()
    FileAnchor.for_database(used).path.write_bytes(anchor)
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        db.execute("DELETE FROM audit WHERE seq > ?", (rows,))
    by_events = _audit(used, "verify")
    # The whole store is rolled back: only the head shows it.
    used.write_bytes(older)
    unknown, by_head = _audit(used, "verify"), _audit(used, "verify", "--expect", head)
    used.write_bytes(newer)

    assert [done.exit_code for done in (by_events, unknown, by_head)] == [1, 0, 1]
    assert "an older copy of the store and its anchor was put back" in by_head.output
    assert _audit(used, "verify", "--expect", head).exit_code == 0
    assert _audit(used, "verify", "--expect", "40:zz").exit_code == 2


@pytest.mark.anyio
@pytest.mark.promise("AUD-05")
async def test_records_removed_with_anchor_and_events_are_found_by_a_known_head_alone(
    make_host: HostFactory, tmp_path: Path
) -> None:
    used = await _use_a_session(make_host, tmp_path)
    head = json.loads(_audit(used, "verify", "--json").output)["head"]
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
        db.execute("DELETE FROM events")
    FileAnchor.for_database(used).path.unlink()

    unknown, by_head = _audit(used, "verify"), _audit(used, "verify", "--json", "--expect", head)

    assert [done.exit_code for done in (unknown, by_head)] == [0, 1]
    report = json.loads(by_head.output)
    assert (report["good"], report["seq"], report["head"]) == (False, int(head.partition(":")[0]), "")


@pytest.mark.anyio
async def test_control_without_the_cross_check_a_removed_audit_passes_as_new(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = await _use_a_session(make_host, tmp_path)
    with closing(sqlite3.connect(used, isolation_level=None)) as db:
        db.execute("DELETE FROM audit")
    FileAnchor.for_database(used).path.unlink()
    monkeypatch.setattr(SqlReadTx, "session_with_unrecorded_calls", _find_none)

    verified = _audit(used, "verify")

    assert (verified.exit_code, verified.output) == (0, "There are no records yet.\n")


def test_anchor_may_be_behind_the_chain_but_not_ahead() -> None:
    start = empty_chain_head(b"store")
    first = next_row(start, "{}")
    second = next_row(Head(first.seq, first.digest), "{}")

    assert verify([first, second], start, start) == Verdict(seq=2, anchored_seq=0)
    assert verify([first, second], start, Head(1, first.digest)) == Verdict(seq=2, anchored_seq=1)
    assert verify([first], start, Head(2, second.digest)).problem == (
        "The chain ends at 1, but record 2 was anchored: the end was cut off."
    )


def _edit_body(db: sqlite3.Connection, rng: random.Random) -> None:
    seq = rng.randint(1, ROWS)
    (body,) = db.execute("SELECT body FROM audit WHERE seq = ?", (seq,)).fetchone()
    # A letter inside a word, so that the body stays valid JSON, which the index on it needs.
    at = rng.choice(
        [offset for offset, letter in enumerate(body) if letter.isalpha() and body[offset - 1].isalpha()]
    )
    edited = body[:at] + ("x" if body[at] != "x" else "y") * rng.randint(0, 2) + body[at + 1 :]
    try:
        json.loads(edited)
    except ValueError:
        edited = body + " "
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (edited, seq))


def _edit_digest(db: sqlite3.Connection, rng: random.Random) -> None:
    seq, bit = rng.randint(1, ROWS), rng.randrange(256)
    (digest,) = db.execute("SELECT digest FROM audit WHERE seq = ?", (seq,)).fetchone()
    changed = (int.from_bytes(digest, "big") ^ (1 << bit)).to_bytes(32, "big")
    db.execute("UPDATE audit SET digest = ? WHERE seq = ?", (changed, seq))


def _delete_some(db: sqlite3.Connection, rng: random.Random) -> None:
    for seq in rng.sample(range(1, ROWS + 1), rng.randint(1, 3)):
        db.execute("DELETE FROM audit WHERE seq = ?", (seq,))


def _delete_and_close_the_gap(db: sqlite3.Connection, rng: random.Random) -> None:
    seq = rng.randint(1, ROWS)
    db.execute("DELETE FROM audit WHERE seq = ?", (seq,))
    for later in range(seq + 1, ROWS + 1):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (later - 1, later))


def _swap(db: sqlite3.Connection, rng: random.Random) -> None:
    first, second = rng.sample(range(1, ROWS + 1), 2)
    for before, after in ((first, 0), (second, first), (0, second)):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (after, before))


def _swap_bodies(db: sqlite3.Connection, rng: random.Random) -> None:
    first, second = rng.sample(range(1, ROWS + 1), 2)
    bodies = dict(db.execute("SELECT seq, body FROM audit WHERE seq IN (?, ?)", (first, second)))
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (bodies[second], first))
    db.execute("UPDATE audit SET body = ? WHERE seq = ?", (bodies[first], second))


def _truncate(db: sqlite3.Connection, rng: random.Random) -> None:
    db.execute("DELETE FROM audit WHERE seq > ?", (rng.randint(0, ROWS - 1),))


def _insert(db: sqlite3.Connection, rng: random.Random) -> None:
    at = rng.randint(1, ROWS)
    for seq in range(ROWS, at - 1, -1):
        db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (seq + 1, seq))
    db.execute("INSERT INTO audit (book, seq, body, digest) VALUES (0, ?, '{}', ?)", (at, rng.randbytes(32)))


def _rewrite(db: sqlite3.Connection, rng: random.Random) -> None:
    _rewrite_from(db, rng.randint(1, ROWS))


def _rewrite_from(db: sqlite3.Connection, seq: int) -> None:
    """Change one record and recompute the chain from there, like an attacker who knows the algorithm."""
    head = _genesis(db)
    for row in list(_rows(db)):
        body = row.body.replace("completed", "denied!") if row.seq == seq else row.body
        row_again = next_row(head, body)
        db.execute(
            "UPDATE audit SET body = ?, digest = ? WHERE seq = ?",
            (row_again.body, row_again.digest, row_again.seq),
        )
        head = Head(row_again.seq, row_again.digest)


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


def _run_commands(database: Path) -> tuple[Result, Result, Result]:
    """The results of `audit verify`, `store check` and `audit list` on a file."""
    commands = (("audit", "verify"), ("store", "check"), ("audit", "list"))
    verified, checked, listed = (
        CliRunner().invoke(app, [*command, "--path", str(database)]) for command in commands
    )
    return verified, checked, listed


def _has_no_traceback(done: Result) -> bool:
    return done.exception is None or isinstance(done.exception, SystemExit | HoldfastError)


def _raw_rows(database: Path) -> list[tuple[int, bytes, bytes]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        db.text_factory = bytes
        try:
            return db.execute("SELECT seq, body, digest FROM audit ORDER BY seq").fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return []


def _rows(db: sqlite3.Connection) -> Iterator[AuditRow]:
    return SqlReadTx(db).audit_rows()


def _genesis(db: sqlite3.Connection) -> Head:
    return empty_chain_head(SqlReadTx(db).store_id())


def _verdict(database: Path) -> Verdict:
    anchor = FileAnchor.for_database(database).read()
    db = connect_readonly(database)
    try:
        return verify_store(SqlReadTx(db), anchor)
    finally:
        db.close()


def _find_none(tx: SqlReadTx) -> None:
    return None


async def _use_a_session(make_host: HostFactory, folder: Path) -> Path:
    """Make two calls in a session of a durable host. Return its database."""
    async with make_host({}, durable=True) as host, host.session(cwd=folder) as session:
        await session.call("files.list")
        await session.call("files.list")
    return folder / "data" / "holdfast.db"


def _audit(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments, "--path", str(database)])


@pytest.mark.slow
def test_approval_that_was_written_into_the_file_is_found(tmp_path: Path):
    env = Environment(tmp_path)
    env.in_project(c={"command": "true"})
    assert env.run("servers", "approve", "c", "--direct", "--yes").returncode == 0
    fine, listed = env.run("audit", "verify"), env.read_lines("servers", "approvals")
    origin = json.dumps(["server", str(env.project / ".mcp.json"), "forged"])
    with closing(sqlite3.connect(tmp_path / "data" / "holdfast.db", isolation_level=None)) as db:
        db.execute("INSERT INTO approvals VALUES (?, 'a hash', 'first use', 1)", [origin])

    verified, checked = env.run("audit", "verify"), env.run("store", "check")

    assert (fine.returncode, verified.returncode, checked.returncode) == (0, 1, 1)
    assert "has no record" in verified.stdout
    assert {row["audit"] for row in listed} == {"recorded"}
    assert [row["audit"] for row in env.read_lines("servers", "approvals") if row["server"] == "forged"] == [
        "no record"
    ]


@pytest.mark.slow
def test_revoked_approval_ends_the_use_of_a_server_and_is_found_if_it_is_put_back(tmp_path: Path):
    env = Environment(tmp_path)
    env.in_project(c={"command": "true"})
    env.run("servers", "approve", "c", "--direct", "--yes")
    database = tmp_path / "data" / "holdfast.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        rows = db.execute("SELECT * FROM approvals").fetchall()

    revoked, again = env.run("servers", "revoke", "c"), env.run("servers", "revoke", "c")
    after = env.run("servers", "list").stdout
    fine = env.run("audit", "verify")
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.executemany("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)", rows)

    assert (revoked.returncode, again.returncode, fine.returncode) == (0, 1, 0)
    assert "not approved" in after
    assert env.run("audit", "verify").returncode == 1
    # The control: the row alone admits the server.
    assert "not approved" not in env.run("servers", "list").stdout
