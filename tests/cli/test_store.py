import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.schema import APPLICATION_ID
from tests.audit.records import record
from tests.commands import run_holdfast
from tests.store.sessions import hold_session, reply

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    async def fill(path: Path) -> None:
        async with SqliteStore(path) as store, Audit(store) as audit:
            hold = await hold_session(store)
            for number in range(3):
                await store.append(hold, reply(number))
                await audit.write(record(number))

    asyncio.run(fill(tmp_path / "holdfast.db"))
    return tmp_path / "holdfast.db"


def test_check_reports_no_problems(database: Path) -> None:
    done = _run("store", "check", "--path", str(database))
    printed = json.loads(_run("store", "check", "--json", "--path", str(database)).stdout)

    assert (done.returncode, done.stdout) == (
        0,
        f"1 session, 3 events, {database.stat().st_size} bytes, schema 3: no problems found.\n",
    )
    assert printed == {
        "schema": 3,
        "sessions": 1,
        "events": 3,
        "bytes": database.stat().st_size,
        "problems": [],
    }


def test_check_finds_gaps_and_tampering(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit WHERE seq = 3")
    cut = _run("store", "check", "--path", str(database))
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM events WHERE seq = 2")
    gap = _run("store", "check", "--path", str(database))

    assert (cut.returncode, gap.returncode) == (1, 1)
    assert "The audit was tampered with: The chain ends at 2, but record 3 was anchored" in cut.stdout
    assert "have gaps: 2 events, but the last is number 3." in gap.stdout


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ("DELETE FROM meta", "- The store's store_id is missing.\n"),
        ("UPDATE sessions SET roots = '{}'", " is damaged: Expected `array`, got `object`.\n"),
        ("UPDATE sessions SET title = CAST(x'ff' AS TEXT)", "- The file cannot be read completely: "),
    ],
)
def test_check_finds_edited_rows_without_crashing(database: Path, edit: str, problem: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(edit)

    checked = _run("store", "check", "--path", str(database))
    others = [
        _run(*command, "--path", str(database))
        for command in (("audit", "verify"), ("audit", "list"), ("audit", "export"), ("sessions", "list"))
    ]

    assert (checked.returncode, checked.stderr) == (1, "")
    assert problem in checked.stdout
    assert [done.stderr for done in others if "Traceback" in done.stderr] == []


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (
            "CREATE TRIGGER quiet BEFORE INSERT ON audit BEGIN SELECT raise(IGNORE); END",
            "The trigger quiet does not belong in a store.",
        ),
        (
            "CREATE TRIGGER audit BEFORE INSERT ON audit BEGIN SELECT raise(IGNORE); END",
            "The trigger audit does not belong in a store.",
        ),
        (
            'CREATE TRIGGER "sqlite-stat1" BEFORE INSERT ON audit BEGIN SELECT raise(IGNORE); END',
            "The trigger sqlite-stat1 does not belong in a store.",
        ),
        ("CREATE VIEW all_of_it AS SELECT * FROM events", "The view all_of_it does not belong in a store."),
        ("DROP INDEX events_by_key", "The index events_by_key is missing."),
        (
            "ALTER TABLE audit ADD COLUMN more TEXT",
            "The table audit differs from the one that Holdfast creates.",
        ),
    ],
)
def test_check_names_unexpected_and_missing_tables(database: Path, edit: str, problem: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(edit)

    printed = json.loads(_run("store", "check", "--json", "--path", str(database)).stdout)

    assert printed["problems"] == [problem]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ("DELETE FROM words_config", "The file cannot be read completely: invalid fts5 file format"),
        ("DELETE FROM words_data", "The file cannot be read completely: "),
        ("DELETE FROM words_content", "The search index is damaged: 1 of 1 messages are missing."),
        (
            "UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 10",
            "The search index is damaged: 1 of 1 messages are missing.",
        ),
        ("DELETE FROM messages", "The search index is damaged: it has 1 unknown messages."),
    ],
)
def test_a_broken_search_index_is_reported_by_check_and_search(
    database: Path, edit: str, problem: str
) -> None:
    asyncio.run(_index(database))
    found = _run("sessions", "search", "piece", "--path", str(database))
    fine = _run("store", "check", "--path", str(database))
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(edit)

    checked = json.loads(_run("store", "check", "--json", "--path", str(database)).stdout)
    searched = _run("sessions", "search", "piece", "--path", str(database))

    assert ("piece 1" in found.stdout, fine.returncode) == (True, 0)
    assert (
        [printed for printed in checked["problems"] if printed.startswith(problem)]
        == checked["problems"]
        != []
    )
    assert "Traceback" not in searched.stderr


async def _index(database: Path) -> None:
    async with SqliteStore(database) as store:
        await store.write(lambda tx: tx.index_messages())


def test_a_schema_name_that_is_not_text_is_damage(database: Path) -> None:
    whole = database.read_bytes()
    database.write_bytes(whole.replace(b"tableapprovals", b"tableapprov\xffls"))

    for command in (("store", "check"), ("audit", "verify"), ("audit", "list"), ("sessions", "list")):
        done = _run(*command, "--path", str(database))
        assert (done.returncode in (1, 3), "Traceback" in done.stderr) == (True, False), done.stderr


def test_a_backup_verifies_on_its_own(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()

    done = _run("store", "backup", str(copy), "--path", str(database))

    assert (done.returncode, done.stdout) == (0, f"Copied to {copy}.\n")
    assert _run("audit", "verify", "--path", str(copy)).stdout.startswith(
        "3 records, all unchanged. The anchor, a copy of the head outside the database, confirms the first 3.\nHead: 3:"
    )
    assert _run("store", "check", "--path", str(copy)).returncode == 0
    assert _run("store", "backup", str(copy), "--path", str(database)).returncode == 1


@pytest.mark.slow
def test_a_backup_ends_while_others_keep_writing(database: Path, tmp_path: Path) -> None:
    _enlarge(database)

    with _another_writer(database):
        done = _run("store", "backup", str(tmp_path / "copy.db"), "--path", str(database), timeout=30)

    assert done.returncode == 0, done.stderr
    assert _run("store", "check", "--path", str(tmp_path / "copy.db")).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_an_interrupted_backup_leaves_no_file(
    database: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    _enlarge(database)
    folder = tmp_path / "copies"
    folder.mkdir()

    command = [HOLDFAST, "store", "backup", str(folder / "copy.db"), "--path", str(database)]
    returncode, printed = _interrupt(command, folder, number)

    assert (returncode, os.listdir(folder), b"Traceback" in printed) == (code, [], False)


def _interrupt(command: list[str], folder: Path, number: signal.Signals) -> tuple[int, bytes]:
    """Run a command, and send it a signal when it has made a file in the folder. Try again if the command has ended before the signal."""
    for _ in range(20):
        with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
            while running.poll() is None and not os.listdir(folder):
                pass
            running.send_signal(number)
            _, printed = running.communicate(timeout=30)
        if running.returncode != 0:
            return running.returncode, printed
        for made in folder.iterdir():
            made.unlink()
    raise AssertionError("The command was never interrupted.")


def test_sizes_include_the_changes_that_a_running_process_has_not_yet_moved_to_the_file(
    tmp_path: Path,
) -> None:
    async def vacuum_while_open(path: Path) -> tuple[str, int]:
        async with SqliteStore(path) as store:
            hold = await hold_session(store)
            for number in range(3):
                await store.append(hold, reply(number))
            in_file = path.stat().st_size
            return (await asyncio.to_thread(_run, "store", "vacuum", "--path", str(path))).stdout, in_file

    printed, in_file = asyncio.run(vacuum_while_open(tmp_path / "holdfast.db"))
    before, after = (int(word) for word in printed.split() if word.isdecimal())

    assert before >= after
    assert before > in_file  # the control: the file alone is smaller


def test_vacuum_says_why_a_store_that_is_being_read_takes_more_space(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessions").fetchone()
        in_use = _run("store", "vacuum", "--path", str(database))
    alone = _run("store", "vacuum", "--path", str(database))

    before, after = (int(word) for word in in_use.stdout.split() if word.isdecimal())
    assert (in_use.returncode, before < after) == (0, True)
    assert "Another process was reading the store" in in_use.stdout
    assert (alone.returncode, "Another process" in alone.stdout) == (0, False)


def test_vacuum_prints_the_sizes(database: Path) -> None:
    done = _run("store", "vacuum", "--path", str(database))

    assert done.returncode == 0
    assert "bytes before, " in done.stdout
    assert _run("store", "check", "--path", str(database)).returncode == 0


@pytest.mark.parametrize(
    "command", [["check"], ["vacuum"], ["backup", "copy.db"]], ids=lambda command: command[0]
)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            "newer",
            "was written by a newer version of Holdfast (schema 99; this version supports 3). Nothing was changed.",
        ),
        ("foreign", "is a database of another program. Nothing was changed."),
        ("garbage", "is damaged or not a database. Nothing was changed."),
        ("folder", "There is no store at"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_stays_unchanged(
    tmp_path: Path, command: list[str], spoil: str, sentence: str
) -> None:
    path = tmp_path / "holdfast.db"
    match spoil:
        case "newer" | "foreign":
            with closing(sqlite3.connect(path)) as db:
                db.execute("CREATE TABLE sessions (n)")
                if spoil == "newer":
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    db.execute("PRAGMA user_version = 99")
        case "garbage":
            path.write_bytes(b"garbage" * 2000)
        case _:
            path.mkdir()
    before = path.read_bytes() if path.is_file() else b""

    done = _run("store", *command, "--path", str(path), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (3, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert os.listdir(tmp_path) == ["holdfast.db"]


@pytest.mark.parametrize("path", ["", ".", "/", "x" * 300, "file/holdfast.db"])
@pytest.mark.parametrize(
    "command",
    [
        ("store", "check"),
        ("store", "vacuum"),
        ("store", "backup", "z"),
        ("audit", "verify"),
        ("audit", "list"),
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_a_store_is_reported_as_unreadable(
    tmp_path: Path, command: tuple[str, ...], path: str
) -> None:
    (tmp_path / "file").touch()

    done = _run(*command, "--path", path, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: '") or done.stderr.startswith("Error: There is no"), done.stderr
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("data_dir", ["file", "file/below", "x" * 300])
@pytest.mark.parametrize("command", [("store", "check"), ("audit", "verify")], ids=" ".join)
def test_a_data_dir_that_cannot_hold_a_store_is_reported_as_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], data_dir: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / data_dir))

    done = _run(*command)

    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (3, "", False)


@pytest.mark.parametrize("command", [("store", "check"), ("audit", "verify")], ids=" ".join)
def test_bad_settings_are_reported_as_an_unreadable_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "config.toml").write_text("data_dir = 7")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("HOLDFAST_DATA_DIR", raising=False)

    done = _run(*command)

    assert (done.returncode, done.stdout) == (3, "")
    assert "data_dir" in done.stderr


@pytest.mark.parametrize("copy", ["", ".", "/"])
def test_a_backup_needs_a_file_name(database: Path, copy: str) -> None:
    done = _run("store", "backup", copy, "--path", str(database))

    assert (done.returncode, done.stdout) == (1, "")
    assert " is a folder.\nHint: Give the path of a new file.\n" in done.stderr


def _enlarge(database: Path) -> None:
    """Make the store too large to be copied in one step."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(
            "WITH RECURSIVE some (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < 500) "
            "INSERT INTO approvals SELECT 'server ' || n, hex(zeroblob(50000)), 'me', 0 FROM some"
        )


@contextmanager
def _another_writer(database: Path) -> Iterator[None]:
    ended = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as db:
            while not ended.is_set():
                db.execute("UPDATE sessions SET updated = updated + 1")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _run(
    *arguments: str, cwd: Path | None = None, timeout: float | None = None
) -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*arguments, cwd=cwd, timeout=timeout or 60)


@pytest.fixture
def damaged(database: Path) -> Path:
    """A store with damaged pages, which can still be opened."""
    content = bytearray(database.read_bytes())
    with closing(sqlite3.connect(database)) as db:
        roots = db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name IN ('events', 'audit') AND type = 'table'"
        )
        for (page,) in roots.fetchall():
            content[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    database.write_bytes(content)
    return database


def test_damage_is_reported_once_and_not_called_tampering(damaged: Path) -> None:
    checked = _run("store", "check", "--path", str(damaged))

    problems = [line for line in checked.stdout.splitlines() if line.startswith("- ")]
    assert checked.returncode == 1
    assert len(problems) == len(set(problems))
    assert "- The audit cannot be verified: The records cannot be read" in checked.stdout
    assert "tampered" not in checked.stdout


@pytest.mark.promise("STO-03")
def test_the_gateway_does_not_start_on_a_damaged_store(damaged: Path) -> None:
    damaged.parent.chmod(0o700)
    up = run_holdfast("up", "--port", "0", env={**os.environ, "HOLDFAST_DATA_DIR": str(damaged.parent)})

    assert (up.returncode, up.stdout) == (1, "")
    assert up.stderr.startswith(f"Error: '{damaged}' is damaged or not a database.")
    assert "Hint: Keep the file, run `holdfast store check`, and restore a backup." in up.stderr
