"""Attack 30: newlines, ANSI sequences and JSON in names, written to the log, the audit and a terminal."""

import io
import json
import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import telemetry
from holdfast.audit.audit import Audit
from holdfast.audit.record import decode_record
from holdfast.store.sqlite import SqliteStore
from tests.audit.records import record

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
NAMES = (
    'files\n{"kind":"call","outcome":"completed","tool":"innocent"}',
    '","outcome":"completed","tool":"innocent","x":"',
    "\x1b[2J\x1b[1;1Hnothing happened here",
    "a\r\nb\x00c\x7fd\x85e\u2028f\u202eg\u200bh",
    "\ud800 half a character",
    "x" * 100_000,
)


@pytest.mark.anyio
@pytest.mark.promise("AUD-01")
async def test_every_name_makes_exactly_one_audit_record(tmp_path: Path) -> None:
    path = await _audited(tmp_path)

    with closing(sqlite3.connect(path)) as db:
        bodies = [body for (body,) in db.execute("SELECT body FROM audit ORDER BY seq")]

    assert [json.loads(body)["tool"] for body in bodies] == [_kept(name) for name in NAMES]
    assert [json.loads(body)["outcome"] for body in bodies] == ["denied"] * len(NAMES)
    assert [body.isascii() and body.isprintable() for body in bodies] == [True] * len(NAMES)
    assert [decode_record(body).server for body in bodies] == ["s"] * len(NAMES)


@pytest.mark.anyio
@pytest.mark.promise("AUD-02")
async def test_audit_commands_print_one_line_per_record_without_control_characters(tmp_path: Path) -> None:
    path = await _audited(tmp_path)

    listed = _run("audit", "list", "--path", str(path))
    exported = _run("audit", "export", "--path", str(path))
    verified = _run("audit", "verify", "--path", str(path))

    assert [len(listed.splitlines()), len(exported.splitlines())] == [len(NAMES) + 1, len(NAMES)]
    assert [json.loads(line)["record"]["tool"] for line in exported.splitlines()] == [
        _kept(name) for name in NAMES
    ]
    assert all(character.isprintable() or character == "\n" for character in listed + exported)
    assert verified.startswith(f"{len(NAMES)} records, all unchanged")


@pytest.mark.parametrize("format", ["human", "json"])
def test_every_name_makes_exactly_one_log_line(format: str) -> None:
    lines = _logged(format)

    assert len(lines) == len(NAMES)
    assert all(line.isprintable() for line in lines)


def test_control_unescaped_log_is_forged() -> None:
    written = "".join(f"denied {name}\n" for name in NAMES)

    assert '{"kind":"call","outcome":"completed","tool":"innocent"}' in written.splitlines()
    assert not written.replace("\n", "").isprintable()


def _kept(name: str) -> str:
    return name[:256].replace("\ud800", "?")


async def _audited(folder: Path) -> Path:
    path = folder / "holdfast.db"
    async with SqliteStore(path) as store, Audit(store) as audit:
        for name in NAMES:
            await audit.write(record(server="s", tool=name, outcome="denied", reason=name))
    return path


def _logged(format: str) -> list[str]:
    stream = io.StringIO()
    telemetry.configure("info", "human" if format == "human" else "json", stream)
    try:
        for name in NAMES:
            logging.getLogger("holdfast.test").info("denied", extra={"tool": name})
    finally:
        telemetry.configure("info", "auto")
    return stream.getvalue().split("\n")[:-1]


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [HOLDFAST, *arguments], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return done.stdout
