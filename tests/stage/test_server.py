"""The server as a process and in sessions: its tools, how it ends, and what it leaves."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import settings
from holdfast.builtin.stage.browser_folder import BrowserFolder, remove_leftovers
from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.launch import LaunchOptions
from holdfast.builtin.stage.server import stage_toolbox
from holdfast.host.host import Host
from holdfast.model.trust import Trust
from holdfast.store.memory import MemoryStore
from tests.stage.site import Site

needs_browser = pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
ROOT = Path(__file__).resolve().parent.parent.parent


def _tools(**options: Any) -> list[dict[str, Any]]:
    box = stage_toolbox(LaunchOptions(**options), SessionFiles(roots=()))
    return [
        {
            "name": name,
            "description": tool.description,
            "inputSchema": tool.schema,
            "annotations": tool.annotations,
        }
        for name, tool in box.tools.items()
    ]


def test_the_manifest_costs_at_most_7000_tokens():
    tools = _tools()

    assert len(tools) == 27
    assert len(msgspec.json.encode(tools)) / 4 < 7000


@pytest.mark.promise("STG-18")
def test_tools_that_need_a_flag_or_a_direct_session():
    process = _run_server("manifest")
    names = {
        tool["name"]: tool["requires_eval_flag"] for tool in msgspec.json.decode(process.stdout)["tools"]
    }

    assert names["evaluate"] is True
    assert not any(flag for name, flag in names.items() if name != "evaluate")
    assert "attach" not in {tool["name"] for tool in _tools(is_sandboxed=True)}


@pytest.mark.promise("STG-02")
def test_folders_of_servers_that_were_killed_are_removed_at_the_next_start(tmp_path: Path):
    code = f"from pathlib import Path; from holdfast.builtin.stage.browser_folder import BrowserFolder; print(BrowserFolder(Path({str(tmp_path)!r})).path); import os; os._exit(9)"
    left = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())  # noqa: PLW1510
    running = BrowserFolder(tmp_path / "x")

    assert left.is_dir()
    own = BrowserFolder(tmp_path)
    assert not left.exists()
    assert own.path.is_dir()
    assert remove_leftovers(tmp_path / "x") == 0
    assert running.path.is_dir()
    own.remove()
    running.remove()
    assert [*tmp_path.rglob("b*")] == []


@needs_browser
@pytest.mark.promise("STG-02")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None], ids=["kill", "terminate", "hang-up"])
def test_no_browser_is_left_however_the_server_ends(end: signal.Signals | None, tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "builtin", "stage"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    client = {"name": "t", "version": "1"}
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client},
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "open", "arguments": {}}},
    ]
    for message in messages:
        process.stdin.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
        process.stdin.flush()
    answers = [msgspec.json.decode(process.stdout.readline()) for _ in range(2)]
    assert not answers[1]["result"].get("isError"), answers[1]
    browsers = _descendants(process.pid)
    assert any("chromium" in _command(pid) for pid in browsers)

    if end is None:
        process.stdin.close()
    else:
        process.send_signal(end)
    process.wait(10)

    _wait_until(lambda: not any(_is_alive(pid) for pid in browsers), 5)
    process.stdout.close()
    if process.stdin:
        process.stdin.close()


@needs_browser
@pytest.mark.anyio
@pytest.mark.promise("STG-04")
async def test_sessions_get_a_browser_if_it_is_enabled(tmp_path: Path, site: Site):
    site.page("/hello", "<h1>Hello</h1>")
    async with Host(settings=_settings(tmp_path), store=MemoryStore()) as host:
        async with host.session(cwd=tmp_path / "project", trust=Trust.DIRECT) as session:
            direct = await session.call("stage.open", {"url": f"{site.url}/hello"})
            attached = await session.call("stage.attach", {"endpoint": "127.0.0.1:9222"})
        async with host.session(cwd=tmp_path / "project", trust=Trust.SANDBOXED) as session:
            sandboxed = await session.call("stage.open", {"url": f"{site.url}/hello"})
            allowed = await session.call("stage.open", {"url": f"{site.other_url}/hello"})
            names = {name for name in session.available if "attach" in name}

    assert "h1 Hello" in str(direct.data)
    assert sandboxed.text.startswith("URL_DENIED")
    assert "h1 Hello" in str(allowed.data)
    assert names == set()
    assert attached.code == "NOT_PERMITTED", "attach asks each time, and nobody can answer here"


def _settings(tmp_path: Path) -> settings.Settings:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").touch()
    (tmp_path / "project").mkdir()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "home" / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "home" / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
        "HOLDFAST_SERVERS_REACHABLE": "localhost",
        "HOLDFAST_STAGE_ENABLED": "true",
        "HOLDFAST_STAGE_HOSTS": "*",
    }
    return settings.load(tmp_path / "home" / "config.toml", environ)


def _run_server(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "builtin", "stage", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


def _descendants(pid: int) -> list[int]:
    found = [pid]
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    for _ in range(12):
        found = list({*found, *(child for child, parent in parents.items() if parent in found)})
    return [child for child in found if child != pid]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
