"""Attack 30: newlines, ANSI sequences and JSON in names, written to the log, the audit and a terminal."""

import io
import json
import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast import log_output
from holdfast.audit.audit import Audit
from holdfast.audit.record import decode_record
from holdfast.host.open_options import OpenOptions
from holdfast.masking import MASKED, log_mask
from holdfast.masking.log_mask import LogSecrets
from holdfast.masking.mask import Mask
from holdfast.model.context import use_context
from holdfast.store.sqlite import SqliteStore
from tests.audit.records import record
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]

FIELDS = {"time", "level", "logger", "event"}
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


@pytest.mark.slow
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


PIECES_OF_JSON = ('", "level": ', '"event"', "[masked]", '{"time": "', "warning", "\\u00", "}\n{")
WORDS = "disk full"


@pytest.mark.anyio
@pytest.mark.parametrize("format", ["json", "human"])
async def test_secrets_of_a_client_change_no_other_part_of_a_log_record(
    make_host: HostFactory, tmp_path: Path, format: Literal["json", "human"]
) -> None:
    values = [
        {"name": f"T{number}_TOKEN", "value": value} for number, value in enumerate((*PIECES_OF_JSON, WORDS))
    ]
    server: dict[str, Any] = {"name": "x", "command": "true", "args": [], "env": values}
    stream = io.StringIO()
    async with make_host({}) as host:
        eve = await host.open(OpenOptions(cwd=tmp_path, user_id="eve", client_servers=(server,)))
        log_output.configure("info", format, stream)
        try:
            async with host.session(cwd=tmp_path, user_id="bob") as bob:
                _log_fields()
            with use_context(eve.context):
                _log_fields()
            _log_fields()
        finally:
            log_output.configure("info", "auto")
            await eve.close()

    lines = [line for line in stream.getvalue().splitlines() if "did something" in line]
    assert [WORDS in line for line in lines] == [True, False, False]
    assert [f"session{mark}{bob.context.session_id}" in lines[0] for mark in ("=", '": "')].count(True) == 1
    if format == "json":
        records = [json.loads(line) for line in lines]
        assert (
            records[0].items()
            >= {"level": "warning", "event": "bob did something", "reason": WORDS, "n": 7}.items()
        )
        assert [record["level"] for record in records] == ["warning"] * 3
        assert records[1]["reason"] == records[2]["reason"] == MASKED


def _log_fields() -> None:
    logging.getLogger("holdfast.test").warning("bob did something", extra={"reason": WORDS, "n": 7})


def test_control_a_mask_in_the_formatted_line_makes_it_invalid() -> None:
    stream = io.StringIO()
    log_output.configure("info", "json", stream)
    _log_fields()
    log_output.configure("info", "auto")

    with pytest.raises(ValueError, match="Expecting"):
        json.loads(Mask.of(PIECES_OF_JSON).mask_known(stream.getvalue()))


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        ({"password": "hunter2"}, {"password": MASKED}),
        ({"n": {"api_key": 123456, "x": 1}}, {"n": {"api_key": MASKED, "x": 1}}),
        (
            {"why": "token=abc at https://ann:pw@host/"},
            {"why": f"token={MASKED} at https://ann:{MASKED}@host/"},
        ),
        ({"count": 12345678, "hunter22": 1}, {"count": MASKED, MASKED: 1}),
    ],
)
def test_secrets_in_fields_are_masked_and_the_record_stays_valid(
    extra: dict[str, Any], shown: dict[str, Any]
) -> None:
    stream, mask = io.StringIO(), Mask.of(["12345678", "hunter22"])
    secrets = LogSecrets.of("", mask, mask)
    log_mask.add_secrets(secrets)
    log_output.configure("info", "json", stream)
    logging.getLogger("holdfast.test").info("seen", extra=extra)
    log_output.configure("info", "auto")
    log_mask.remove_secrets(secrets)

    assert {key: value for key, value in json.loads(stream.getvalue()).items() if key not in FIELDS} == shown


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
    log_output.configure("info", "human" if format == "human" else "json", stream)
    try:
        for name in NAMES:
            logging.getLogger("holdfast.test").info("denied", extra={"tool": name})
    finally:
        log_output.configure("info", "auto")
    return stream.getvalue().split("\n")[:-1]


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [HOLDFAST, *arguments], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return done.stdout
