import asyncio
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore
from tests.audit.records import SESSION, record
from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
OTHER = SessionId("sess_fedcba9876543210")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    async def fill(path: Path) -> None:
        async with SqliteStore(path) as store, Audit(store) as audit:
            for number in range(6):
                await audit.write(record(number, session_id=SESSION if number % 2 else OTHER))
            await audit.write(record(6, kind=AuditKind.DENIED, outcome="denied", reason="Not yours."))

    asyncio.run(fill(tmp_path / "holdfast.db"))
    return tmp_path / "holdfast.db"


def test_list_prints_the_latest_records_in_columns(database: Path) -> None:
    done = _run("audit", "list", "--limit", "2", data_dir=database.parent)

    rows = [line.split("  ") for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (
        0,
        "Showing the latest 2; 5 more. To see more, add --limit 4 or --all.\n",
    )
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["seq", "when", "session", "kind", "what", "outcome", "ms", "reason"],
        ["6", "2026-11-01 12:00:00.000+00:00", SESSION, "call", "files.read", "completed", "1.5"],
        [
            "7",
            "2026-11-01 12:00:00.000+00:00",
            SESSION,
            "denied",
            "files.read",
            "denied",
            "1.5",
            "Not yours.",
        ],
    ]


def test_list_filters_by_session_and_kind(database: Path) -> None:
    def listed(*options: str) -> list[int]:
        lines = _run("audit", "list", "--json", *options, data_dir=database.parent).stdout.splitlines()
        return [json.loads(line)["seq"] for line in lines]

    assert listed("--session", OTHER) == [1, 3, 5]
    assert listed("--kind", "denied") == [7]
    assert listed("--session", OTHER, "--kind", "denied") == []


@pytest.mark.promise("AUD-02")
def test_verify_reports_tampering_by_its_exit_code(database: Path) -> None:
    fine = _run("audit", "verify", "--path", str(database))
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM audit WHERE seq = 3")
    bad = _run("audit", "verify", "--path", str(database))
    report = json.loads(_run("audit", "verify", "--json", "--path", str(database)).stdout)
    missing = _run("audit", "verify", "--path", str(database.parent / "none.db"))

    assert (fine.returncode, fine.stdout.splitlines()[0]) == (
        0,
        "7 records, all unchanged. The anchor, a copy of the head outside the database, confirms the first 7.",
    )
    assert (bad.returncode, bad.stdout) == (1, "Tampered with: Record 3 is missing.\n")
    assert report == {"good": False, "seq": 3, "anchored": 7, "problem": "Record 3 is missing.", "head": ""}
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "Error: There is no store at" in missing.stderr
    assert _run("audit", "verify", "--frobnicate").returncode == 2


@pytest.mark.promise("AUD-02")
@pytest.mark.parametrize("spoil", ["", "edit", "cut", "swap"])
def test_an_export_can_be_verified_without_the_store(database: Path, tmp_path: Path, spoil: str) -> None:
    exported = tmp_path / "audit.jsonl"
    page = Path(__file__).parents[2] / "docs" / "store.md"
    (recipe,) = re.findall(r"```python\n(import hashlib.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)

    assert _run("audit", "export", "--output", str(exported), "--path", str(database)).returncode == 0
    database.unlink()
    lines = exported.read_text(encoding="ascii").splitlines(keepends=True)
    match spoil:
        case "edit":
            lines[3] = lines[3].replace("files", "filez")
        case "cut":
            del lines[3]
        case "swap":
            lines[3], lines[4] = lines[4], lines[3]
        case _:
            pass
    exported.write_text("".join(lines))
    checked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", recipe, str(exported)], capture_output=True, text=True, check=False
    )

    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    if spoil:
        assert (checked.returncode, checked.stdout) == (1, "")
        assert "record 4 does not match" in checked.stderr
    else:
        digest = json.loads(lines[-1])["digest"]
        assert (checked.returncode, checked.stdout) == (0, f"7 records match; the last digest is {digest}\n")


def test_an_export_overwrites_nothing(database: Path, tmp_path: Path) -> None:
    exported = tmp_path / "audit.jsonl"
    exported.write_text("precious")

    done = _run("audit", "export", "--output", str(exported), "--path", str(database))

    assert (done.returncode, exported.read_text()) == (1, "precious")
    assert f"'{exported}' already exists. Nothing was changed." in done.stderr


def test_the_beginning_of_a_session_id_is_enough(database: Path) -> None:
    def listed(named: str, command: str = "list") -> list[int]:
        json_option = ("--json",) if command == "list" else ()
        done = _run("audit", command, *json_option, "--session", named, "--path", str(database))
        return [json.loads(line)["seq"] for line in done.stdout.splitlines()]

    assert listed(OTHER[:13]) == listed(f"{OTHER[5:10]}…") == listed(OTHER) == [1, 3, 5]
    assert listed(OTHER[:13], "export") == [1, 3, 5]


@pytest.mark.parametrize("named", ["sess_0123456789abcdefff", OTHER + "ff"])
def test_an_id_without_records_lists_none(database: Path, named: str) -> None:
    done = _run("audit", "list", "--session", named, "--path", str(database))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No records match.\n")


def test_an_invalid_session_id_is_an_error(database: Path) -> None:
    done = _run("audit", "list", "--session", "x", "--path", str(database))

    assert done.returncode == 1
    assert "There is no session 'x'. Give at least 4 characters of the id." in done.stderr


def _run(*arguments: str, data_dir: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(data_dir or "/nonexistent"), "HOLDFAST_CONFIG": ""}
    return run_holdfast(*arguments, env=environ)
