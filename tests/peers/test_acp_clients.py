"""Third-party ACP clients with `holdfast acp`: each runs the same journey."""

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from tests.journeys.editor import HOLDFAST, SERVER, editor, environment
from tests.journeys.schema import MessageValidator
from tests.peers.spawn import PACKAGES, node, python

pytestmark = pytest.mark.anyio

EXPECTED = {
    "version": 1,
    "stopped": "end_turn",
    "permissions": 2,
    "cancelled": "cancelled",
    "listed": 1,
    "unknown": -32002,
    "mode": "auto",
    "replayed": True,
    "same replies": True,
    "works after resume": "end_turn",
    "not asked in auto": 0,
}
DENIED = 5  # the exit code of acpx when it rejected a call
ACPX = PACKAGES / ".bin" / "acpx"


async def run(command: list[str], home: Path, *, code: int = 0) -> str:
    ended = await asyncio.to_thread(
        subprocess.run,
        command,
        env=environment(home, {"HOME": str(home)}),
        capture_output=True,
        timeout=50,
        text=True,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.promise("ACP-04", "ACP-05", "ACP-08")
async def test_python_sdk_client(tmp_path: Path):
    cwd = _folder(tmp_path)
    output = await run([*python("acp_sdk_client.py"), str(cwd), str(SERVER), *recorded(tmp_path)], tmp_path)

    assert json.loads(output) == EXPECTED
    assert check_recordings(tmp_path) == 2


@pytest.mark.slow
@pytest.mark.promise("ACP-04", "ACP-05", "ACP-08")
async def test_typescript_sdk_client(tmp_path: Path):
    cwd = _folder(tmp_path)
    arguments = [str(PACKAGES), str(cwd), str(SERVER), sys.executable, *recorded(tmp_path)]
    output = await run(node("acp_typescript_client.mjs", *arguments), tmp_path)

    assert json.loads(output) == EXPECTED
    assert check_recordings(tmp_path) == 3


async def test_acpx_runs_a_prompt_and_answers_permission_requests(tmp_path: Path):
    cwd = _folder(tmp_path)
    _servers(tmp_path)
    file = cwd / "note"
    write = f'/call tools.write {{"path": "{file}", "text": "hi"}}'
    denied = await run(acpx(tmp_path, "--deny-all", "exec", write), tmp_path, code=DENIED)
    not_written = file.exists()
    allowed = await run(acpx(tmp_path, "--approve-all", "exec", write), tmp_path)

    assert (not_written, "was not permitted" in denied) == (False, True)
    assert (file.read_text(), "written" in allowed) == ("hi", True)
    await _wait_ended(tmp_path)
    assert check_recordings(tmp_path) == 2


@pytest.mark.slow
async def test_acpx_keeps_a_session_across_restarts_and_cancels(tmp_path: Path):
    cwd = _folder(tmp_path)
    _servers(tmp_path)
    await run(acpx(tmp_path, "--approve-all", "sessions", "new"), tmp_path)
    one = await run(acpx(tmp_path, "--approve-all", "prompt", '/call tools.echo {"text": "one"}'), tmp_path)
    await _wait_ended(tmp_path)  # the next prompt starts Holdfast again, and resumes the session
    two = await run(acpx(tmp_path, "--approve-all", "prompt", '/call tools.echo {"text": "two"}'), tmp_path)
    wait = acpx(tmp_path, "--approve-all", "prompt", f'/call tools.wait {{"started": "{cwd}/started"}}')
    waiting = asyncio.create_task(run(wait, tmp_path))
    async with asyncio.timeout(40):
        while not (cwd / "started").exists():
            if waiting.done():
                # The earlier process was about to end. acpx reports that; the prompt must be sent again.
                assert "shutting down" in str(waiting.exception()), await waiting
                waiting = asyncio.create_task(run(wait, tmp_path))
            await asyncio.sleep(0.05)
    await run(acpx(tmp_path, "cancel"), tmp_path)
    cancelled = await waiting
    await run(acpx(tmp_path, "sessions", "close"), tmp_path)

    assert ("one" in one, "two" in two, "cancelled" in cancelled) == (True, True, True)
    listed = await _sessions(tmp_path)
    assert len(listed) == 1  # one session for all of it
    await _wait_ended(tmp_path)
    assert check_recordings(tmp_path) >= 2


@pytest.mark.parametrize(
    ("params", "result"),
    [
        ({"protocolVersion": 1}, {}),
        ({"protocolVersion": "one"}, {"protocolVersion": 1}),
    ],
    ids=["the agent's", "the editor's"],
)
def test_control_recorded_line_that_does_not_match_the_schema_is_found(
    tmp_path: Path, params: Any, result: Any
):
    agent = f"input(); print({json.dumps({'jsonrpc': '2.0', 'id': 0, 'result': result})!r})"
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    tap = recorded(tmp_path, [sys.executable, "-c", agent])
    ended = subprocess.run(tap, input=line + "\n", capture_output=True, text=True, timeout=20, check=True)

    assert json.loads(ended.stdout)["result"] == result, "the line is forwarded all the same"
    with pytest.raises(ValidationError):
        check_recordings(tmp_path)


def recorded(home: Path, command: list[str] = HOLDFAST) -> list[str]:
    """The command of an agent behind the recording proxy."""
    (home / "recordings").mkdir(exist_ok=True)
    return [*python("acp_tap.py"), str(home / "recordings"), *command]


def check_recordings(home: Path) -> int:
    """Validate every recorded line; return how many agents were started."""
    files = [*(home / "recordings").iterdir()]
    for file in files:
        validator = MessageValidator()
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert {line["by"] for line in lines} == {"agent", "client"}
        for line in lines:
            validator.check(json.loads(line["line"]), by=line["by"])
    return len(files)


def acpx(home: Path, *arguments: str) -> list[str]:
    return [
        str(PACKAGES / ".bin" / "node"),
        str(ACPX),
        "--agent",
        shlex.join(recorded(home)),
        "--cwd",
        str(home / "project"),
        "--ttl",
        "1",
        *arguments,
    ]


async def _wait_ended(home: Path) -> None:
    """Wait until no process uses this data folder."""
    mark = f"HOLDFAST_DATA_DIR={home / 'data'}".encode()
    async with asyncio.timeout(30):
        while any(mark in environ for environ in map(_environ, Path("/proc").glob("[0-9]*"))):
            await asyncio.sleep(0.1)


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


async def _sessions(home: Path) -> list[Any]:
    async with editor(home) as zed:
        return (await zed.request("session/list", {}))["sessions"]


def _folder(home: Path) -> Path:
    cwd = (home / "project").resolve()
    cwd.mkdir()
    return cwd


def _servers(home: Path) -> None:
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
