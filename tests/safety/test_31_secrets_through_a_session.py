"""Attack 31, in a live session: servers leak their secrets in results, errors and on standard error."""

import hashlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast import log_output
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.record import AuditKind
from holdfast.host.open_options import OpenOptions
from holdfast.masking.mask import Mask
from holdfast.model.permission import Mode
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import audit_records

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

KEY, FROM_HOST, HEADER = "canary-env-4f9a2c81", "canary/argv?7d1e", "canary.header.91ab7c"
CANARIES = (KEY, FROM_HOST, HEADER)
TOOLS = ("succeed", "fail", "refuse", "garble", "die", "succeed")


def leaky_server(mode: str) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(Path(__file__).with_name("leaky_server.py")), "${MY_PASSWORD}"],
        "env": {"SERVICE_API_KEY": KEY, "TESTS_LEAKY_SERVER": mode},
    }


SERVERS = {
    "running": leaky_server("running"),
    "failing": leaky_server("failing"),
    "remote": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {HEADER}"}},
}


@pytest.mark.promise("AUD-03")
async def test_no_canary_is_in_stored_data_logs_or_errors(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert await _find_canaries(make_host, tmp_path, monkeypatch) == []


async def test_control_without_masking_canaries_are_everywhere(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def mask_nothing(values: Iterable[str]) -> Mask:
        return Mask()

    monkeypatch.setattr(Mask, "of", mask_nothing)

    found = await _find_canaries(make_host, tmp_path, monkeypatch)

    assert {place for place, _ in found} >= {"files", "log", "errors"}
    assert {canary for _, canary in found} >= {KEY, FROM_HOST}


async def _find_canaries(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """The places where each canary was found after a session in which every server leaked it."""
    monkeypatch.setenv("MY_PASSWORD", FROM_HOST)
    errors: list[str] = []
    stream = io.StringIO()
    log_output.configure("debug", "json", stream)
    try:
        async with make_host(SERVERS, durable=True) as host, host.session(cwd=folder) as session:
            errors += [refusal.reason for refusal in session.refusals]
            for tool in TOOLS:
                answer = await session.call(
                    f"running.{tool}", {"note": f"{KEY} {FROM_HOST}", "deep": [{KEY: HEADER}]}
                )
                errors.append(answer.message)
            errors.append((await session.call(f"running.{KEY}", {"note": FROM_HOST})).code)
    finally:
        log_output.configure("info", "auto")
    stored = b"\0".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file())
    places = {
        "files": stored.decode("utf-8", "replace"),
        "log": stream.getvalue(),
        "errors": "\n".join(errors),
    }
    return [(place, canary) for place, text in places.items() for canary in CANARIES if canary in text]


NUMBER, OTHER = "837492615483726", "canary-of-another-5e1b"
TALKATIVE = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            result = {"tools": [{"name": "go", "description": sys.argv[2], "inputSchema": {}}]}
        case "tools/call":
            number = int(sys.argv[1])
            result = {"content": [], "structuredContent": {"whole": number, "decimal": float(number)}}
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "control"])
async def test_numbers_and_definitions_and_titles_contain_no_secret_of_any_server(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_masked: bool
):
    script = tmp_path / "talkative.py"
    script.write_text(TALKATIVE)
    command = {"command": sys.executable, "args": ["-I", "-S", str(script), NUMBER, f"uses {OTHER}"]}
    servers = {
        "talkative": {**command, "env": {"SERVICE_PIN_TOKEN": NUMBER}},
        "other": {**leaky_server("failing"), "env": {"API_KEY": OTHER, "TESTS_LEAKY_SERVER": "failing"}},
    }
    if not is_masked:
        monkeypatch.setattr(Mask, "of", _mask_nothing)

    async with make_host(servers, durable=True) as host:
        session = await host.open(OpenOptions(cwd=tmp_path, title=f"about {OTHER}", mode=Mode.AUTO))
        await session.wait_ready_and_store()
        result = await session.call("talkative.go", {"amount": int(NUMBER)})
        await session.close()

    stored = b"".join(file.read_bytes() for file in (tmp_path / "data").glob("holdfast.db*"))
    assert result.data == {"whole": int(NUMBER), "decimal": float(NUMBER)}
    assert (NUMBER.encode() in stored, OTHER.encode() in stored) == (not is_masked, not is_masked)


def _mask_nothing(_: object) -> Mask:
    return Mask()


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize("has_key", [True, False], ids=["keyed", "control"])
async def test_masked_argument_cannot_be_guessed_from_its_hash_in_the_audit(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_key: bool
):
    if not has_key:
        monkeypatch.setattr(ArgumentHasher, "__call__", _hash_without_key)
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        await session.call("files.list", {"account": "ann", "otp": "3817"})
        records = await audit_records(host, AuditKind.CALL, AuditKind.DENIED)

    hashes = {record.arguments_hash.rpartition(":")[2] for record in records}
    guesses = (f"{number:04}" for number in range(10_000))
    found = [
        code for code in guesses if _plain_hash(b'{"account":"ann","otp":"%s"}' % code.encode()) in hashes
    ]
    assert (len(hashes), found) == (1, [] if has_key else ["3817"])


def _hash_without_key(_: ArgumentHasher, arguments: bytes) -> str:
    return _plain_hash(arguments)


def _plain_hash(arguments: bytes) -> str:
    return hashlib.sha256(arguments).hexdigest()
