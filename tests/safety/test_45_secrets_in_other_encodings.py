"""Attack 45: a server writes its secret as other programs encode it, in results, errors, its log and the store."""

import io
import json
import runpy
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import log_output
from holdfast.masking import MASKED, escapes
from holdfast.masking.mask import Mask
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("encoding_server.py")
PASSWORDS = {
    "symbols": "Tr0ub4dor&3+zq=Q1x",
    "parentheses": "p@ss!word*(4)~x",
    "quotes": 'it\'s <a> "quoted" é&b/c',
}
ONLY_DECODED = {"encodeURIComponent", "JSON of Go", "JSON of .NET", "shell", "invisible"}
"""Forms of `quotes` in which the secret does not occur as it is."""


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize("name", PASSWORDS)
async def test_no_encoded_secret_is_stored_logged_or_returned(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    assert await _find_forms(make_host, tmp_path, monkeypatch, PASSWORDS[name]) == set()


async def test_control_without_decoding_encoded_secrets_are_stored(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def decode_nothing(_text: str) -> bool:
        return False

    monkeypatch.setattr(escapes, "has_escapes", decode_nothing)

    assert await _find_forms(make_host, tmp_path, monkeypatch, PASSWORDS["quotes"]) >= ONLY_DECODED


@pytest.mark.parametrize(
    "encoded", ["%C3%A9t%C3%A9+%26%20nuit", "&eacute;t&#233; &amp; nuit", "\\xe9t\\303\\251 \\x26 nuit"]
)
async def test_other_encodings_of_other_letters_are_masked(encoded: str):
    assert Mask.of(["été & nuit"]).mask_known(f"({encoded})") == f"({MASKED})"


async def _find_forms(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> set[str]:
    """The forms of the password that a session in which the server wrote them left in files and in the log."""
    monkeypatch.setenv("DB_PASSWORD", password)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    forms: dict[str, str] = runpy.run_path(str(SERVER))["FORMS"]
    entry: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER)],
        "env": {"DB_PASSWORD": password},
    }
    monkeypatch.delenv("DB_PASSWORD")
    stream = io.StringIO()
    log_output.configure("debug", "json", stream)
    try:
        async with make_host({"db": entry}, durable=True) as host, host.session(cwd=folder) as session:
            for form in forms:
                for tool in ("succeed", "refuse"):
                    await session.call(f"db.{tool}", {"form": form})
    finally:
        log_output.configure("info", "auto")
    found = "\n".join(_texts_in_files(folder / "data")) + stream.getvalue()
    assert MASKED in found
    return {
        name
        for name, text in forms.items()
        if any(
            each in found
            for each in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
        )
    }


def _texts_in_files(folder: Path) -> Iterator[str]:
    """The contents of all files: of a database, each value, because a value may be spread over several pages."""
    for path in folder.rglob("*"):
        if path.suffix == ".db":
            with sqlite3.connect(path) as database:
                for (table,) in [*database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
                    for row in database.execute(f'SELECT * FROM "{table}"'):
                        yield from (
                            value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                            for value in row
                        )
        elif path.is_file():
            yield path.read_bytes().decode(errors="replace")
