"""Other people's editors in front of `holdfast acp`: the same journey, whoever leads it."""

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
from tests.journeys.schema import Line
from tests.peers.spawn import PACKAGES, node, python

pytestmark = pytest.mark.anyio

EXPECTED = {
    "version": 1,
    "stopped": "end_turn",
    "permissions": 1,
    "cancelled": "cancelled",
    "listed": 1,
    "unknown": -32002,
    "mode": "auto",
    "replayed": True,
    "same words": True,
    "counts anew": "end_turn",
    "not asked in auto": 0,
}
DENIED = 5  # how acpx ends when it refused something
ACPX = PACKAGES / ".bin" / "acpx"


async def ran(command: list[str], home: Path, *, code: int = 0) -> str:
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


@pytest.mark.promise("ACP-04", "ACP-05", "ACP-08")
async def test_the_python_sdk_client_makes_the_journey(tmp_path: Path):
    cwd = _folder(tmp_path)
    said = await ran([*python("acp_sdk_client.py"), str(cwd), str(SERVER), *tapped(tmp_path)], tmp_path)

    assert json.loads(said) == EXPECTED
    assert checked(tmp_path) == 2


@pytest.mark.promise("ACP-04", "ACP-05", "ACP-08")
async def test_the_typescript_sdk_client_makes_the_journey(tmp_path: Path):
    cwd = _folder(tmp_path)
    arguments = [str(PACKAGES), str(cwd), str(SERVER), sys.executable, *tapped(tmp_path)]
    said = await ran(node("acp_typescript_client.mjs", *arguments), tmp_path)

    assert json.loads(said) == EXPECTED
    assert checked(tmp_path) == 3


async def test_acpx_runs_a_prompt_and_decides_about_permission(tmp_path: Path):
    cwd = _folder(tmp_path)
    _servers(tmp_path)
    file = cwd / "note"
    write = f'/call tools.write {{"path": "{file}", "text": "hi"}}'
    denied = await ran(acpx(tmp_path, "--deny-all", "exec", write), tmp_path, code=DENIED)
    not_written = file.exists()
    allowed = await ran(acpx(tmp_path, "--approve-all", "exec", write), tmp_path)

    assert (not_written, "was not permitted" in denied) == (False, True)
    assert (file.read_text(), "written" in allowed) == ("hi", True)
    await _gone(tmp_path)
    assert checked(tmp_path) == 2


async def test_acpx_keeps_a_session_over_restarts_and_cancels(tmp_path: Path):
    cwd = _folder(tmp_path)
    _servers(tmp_path)
    await ran(acpx(tmp_path, "--approve-all", "sessions", "new"), tmp_path)
    one = await ran(acpx(tmp_path, "--approve-all", "prompt", '/call tools.echo {"text": "one"}'), tmp_path)
    await _gone(tmp_path)  # the next prompt starts Holdfast anew, and takes the session up again
    two = await ran(acpx(tmp_path, "--approve-all", "prompt", '/call tools.echo {"text": "two"}'), tmp_path)
    wait = acpx(tmp_path, "--approve-all", "prompt", f'/call tools.wait {{"started": "{cwd}/started"}}')
    waiting = asyncio.create_task(ran(wait, tmp_path))
    async with asyncio.timeout(40):
        while not (cwd / "started").exists():
            if waiting.done():
                # Its process from before was about to leave: acpx says so, and means that one should ask again.
                assert "shutting down" in str(waiting.exception()), await waiting
                waiting = asyncio.create_task(ran(wait, tmp_path))
            await asyncio.sleep(0.05)
    await ran(acpx(tmp_path, "cancel"), tmp_path)
    cancelled = await waiting
    await ran(acpx(tmp_path, "sessions", "close"), tmp_path)

    assert ("one" in one, "two" in two, "cancelled" in cancelled) == (True, True, True)
    listed = await _sessions(tmp_path)
    assert len(listed) == 1  # one session of ours through all of it
    await _gone(tmp_path)
    assert checked(tmp_path) >= 2


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ({"protocolVersion": 1}, {}),
        ({"protocolVersion": "one"}, {"protocolVersion": 1}),
    ],
    ids=["the agent's", "the editor's"],
)
def test_control_the_tap_notices_a_line_that_is_not_what_the_schema_says(
    tmp_path: Path, asked: Any, answered: Any
):
    says = f"input(); print({json.dumps({'jsonrpc': '2.0', 'id': 0, 'result': answered})!r})"
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": asked})
    tap = tapped(tmp_path, [sys.executable, "-c", says])
    ended = subprocess.run(tap, input=line + "\n", capture_output=True, text=True, timeout=20, check=True)

    assert json.loads(ended.stdout)["result"] == answered, "what is said is passed on all the same"
    with pytest.raises(ValidationError):
        checked(tmp_path)


def tapped(home: Path, command: list[str] = HOLDFAST) -> list[str]:
    """The command of an agent, with all that is said written down."""
    (home / "said").mkdir(exist_ok=True)
    return [*python("acp_tap.py"), str(home / "said"), *command]


def checked(home: Path) -> int:
    """Hold every line both ways against the schema; gives how many agents were started."""
    files = [*(home / "said").iterdir()]
    for file in files:
        line = Line()
        said = [json.loads(kept) for kept in file.read_text(encoding="utf-8").splitlines()]
        assert {kept["by"] for kept in said} == {"agent", "client"}
        for kept in said:
            line.check(json.loads(kept["line"]), by=kept["by"])
    return len(files)


def acpx(home: Path, *arguments: str) -> list[str]:
    return [
        str(PACKAGES / ".bin" / "node"),
        str(ACPX),
        "--agent",
        shlex.join(tapped(home)),
        "--cwd",
        str(home / "project"),
        "--ttl",
        "1",
        *arguments,
    ]


async def _gone(home: Path) -> None:
    """Wait until no process works with this memory."""
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
        return (await zed.ask("session/list", {}))["sessions"]


def _folder(home: Path) -> Path:
    cwd = (home / "project").resolve()
    cwd.mkdir()
    return cwd


def _servers(home: Path) -> None:
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
