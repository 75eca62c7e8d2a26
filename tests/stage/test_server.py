"""The server as a process and in sessions: its tools, how it ends, and what it leaves."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import settings
from holdfast.builtin.servers import AGENT_SERVERS, _first_tools
from holdfast.builtin.stage.browser_folder import BrowserFolder, remove_leftovers
from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.builtin.stage.server import stage_toolbox
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import Decision
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from holdfast.store.memory import MemoryStore
from holdfast.toolkit.listed_tool import to_wire
from tests.session.support import ScriptedUser
from tests.stage.client import run_tools
from tests.stage.processes import Descendants, wait_until
from tests.stage.site import Site

needs_browser = pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
ROOT = Path(__file__).resolve().parent.parent.parent


class Person(ScriptedUser):
    """Keeps the questions that were asked."""

    def __init__(self, *decisions: Decision) -> None:
        super().__init__(*decisions)
        self.questions: list[PermissionQuestion] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.questions.append(question)
        return await super().request_permission(question)


def _tools(**options: Any) -> list[dict[str, Any]]:
    """The tools as `tools/list` shows them."""
    box = stage_toolbox(LaunchOptions(**options), SessionFiles(roots=()))
    return [msgspec.json.decode(msgspec.json.encode(to_wire(tool))) for tool in box.tools.values()]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "condition"),
    [("wait", {"state": "visible"}), ("expect", {"state": "gone"}), ("expect", {"value": ""})],
)
async def test_condition_on_an_element_needs_its_ref(tool: str, condition: dict[str, str], tmp_path: Path):
    async with run_tools(tmp_path) as client:
        failed = await client.fail(tool, text="any", **condition)

    assert failed.code == "BAD_ARGUMENT"
    assert failed.message == f"{next(iter(condition))} is about an element. Pass its ref, too."


def test_the_manifest_costs_at_most_3000_tokens():
    tools = _tools()

    assert len(tools) == 27
    assert len(json.dumps(tools)) / 4 < 3000


def test_pydantic_is_not_imported():
    listed = _run_server("manifest", python=("-X", "importtime"))

    assert "holdfast.builtin.stage.tools" in listed.stderr
    assert "pydantic" not in listed.stderr, "importing pydantic would delay the start"


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
@pytest.mark.parametrize("end", [signal.SIGTERM, None], ids=["terminate", "hang-up"])
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
    below = Descendants(process.pid)
    assert any("chromium" in command for command in below.commands())

    if end is None:
        process.stdin.close()
    else:
        process.send_signal(end)
    process.wait(10)

    wait_until(lambda: below.commands() == [], 5, below.commands)
    process.stdout.close()
    if process.stdin:
        process.stdin.close()


@pytest.mark.slow
@needs_browser
@pytest.mark.anyio
@pytest.mark.promise("STG-04", "STG-15")
async def test_sessions_get_a_browser_that_starts_at_the_first_call(tmp_path: Path, site: Site):
    site.page("/hello", "<h1>Hello</h1><input type=file aria-label=File>")
    further = tmp_path / "further"
    further.mkdir()
    (further / "letter.txt").write_text("Dear")
    (tmp_path / "secret.txt").write_text("no")
    async with Host(settings=_settings(tmp_path), store=MemoryStore()) as host:
        options = OpenOptions(
            cwd=tmp_path / "project",
            roots=(str(further),),
            trust=Trust.DIRECT,
            extra_builtins=frozenset({"stage"}),
        )
        session = await host.open(options)
        try:
            await session.wait_ready()
            before = _stage_processes()
            offered = {tool.name for tool in await session.tools() if tool.server.name == "stage"}
            direct = await session.call("stage.open", {"url": f"{site.url}/hello"})
            during = _stage_processes()
            ref = re.findall(r"\[(\w+)\] file File", str(direct.data))[0]
            arguments = {"ref": ref, "paths": [str(further / "letter.txt")]}
            uploaded = await session.call("stage.upload", arguments)
            outside = await session.call(
                "stage.upload", {**arguments, "paths": [str(tmp_path / "secret.txt")]}
            )
            attached = await session.call("stage.attach", {"endpoint": "127.0.0.1:9222"})
            person = Person(Decision.ALLOW_ALWAYS, Decision.ALLOW_ALWAYS)
            session.attach(person)
            await session.permission.change_mode(Mode.AUTO)
            asked = [await session.call("stage.attach", {"endpoint": "127.0.0.1:9"}) for _ in range(2)]
        finally:
            await session.close()
        async with host.session(
            cwd=tmp_path / "project", trust=Trust.SANDBOXED, tools=["stage.*"]
        ) as session:
            sandboxed = await session.call("stage.open", {"url": f"{site.url}/hello"})
            allowed = await session.call("stage.open", {"url": f"{site.other_url}/hello"})
            names = {tool.name for tool in await session.tools() if tool.server.name == "stage"}

    assert (before, len(during)) == ([], 1)
    assert "h1 Hello" in str(direct.data)
    assert "letter.txt" in str(uploaded.data)
    assert outside.text.startswith("OUTSIDE_ROOTS")
    assert sandboxed.text.startswith("URL_DENIED")
    assert "h1 Hello" in str(allowed.data)
    assert offered - names == {"stage.attach"}
    assert "stage.evaluate" not in offered
    assert attached.code == "NOT_PERMITTED", "attach asks each time, and this session cannot ask"
    assert [envelope.code for envelope in asked] == ["LOAD_FAILED"] * 2
    assert [question.can_remember for question in person.questions] == [False, False]


@pytest.mark.slow
@needs_browser
@pytest.mark.anyio
async def test_an_agent_gets_the_tools_of_a_browser_when_it_opens_one(tmp_path: Path, site: Site):
    site.page("/hello", "<h1>Hello</h1>")
    names: list[list[str]] = []
    async with Host(settings=_settings(tmp_path), store=MemoryStore()) as host:

        async def list_tools(session: Session) -> None:
            await session.wait_ready()
            names.append(sorted(tool.name for tool in await session.tools() if tool.server.name == "stage"))

        for extra_builtins in (AGENT_SERVERS, frozenset[str]()):
            options = OpenOptions(cwd=tmp_path / "project", trust=Trust.DIRECT, extra_builtins=extra_builtins)
            session = await host.open(options)
            await list_tools(session)
            if extra_builtins:
                await session.call("stage.open", {"url": f"{site.url}/hello"})
                await list_tools(session)
            await session.close()
        cost = len(msgspec.json.encode(_first_tools(session.context))) / 4
    before, after, in_an_application = names

    assert before == ["stage.attach", "stage.open"]
    assert len(after) == 26
    assert in_an_application == []
    assert cost < 300


def _stage_processes() -> list[int]:
    """The servers that this process has started."""
    return [pid for pid, command in Descendants(os.getpid()).running().items() if "builtin stage" in command]


def _settings(tmp_path: Path) -> settings.Settings:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").touch()
    (tmp_path / "project").mkdir()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "home" / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "home" / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
        "HOLDFAST_SERVERS_REACHABLE": "localhost",
        "HOLDFAST_STAGE_HOSTS": "*",
    }
    return settings.load(tmp_path / "home" / "config.toml", environ)


def _run_server(*arguments: str, python: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "holdfast", "builtin", "stage", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
