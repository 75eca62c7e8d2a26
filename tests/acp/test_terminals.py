"""Commands of `shell` in the editor's terminals."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.acp.messages import ClientCapabilities
from holdfast.wire.messages import PeerError, Request
from tests.acp.zed import Zed, connected
from tests.connect.conftest import HostFactory, make_host
from tests.journeys import schema

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

TERMINALS = ClientCapabilities(terminal=True)


class TerminalEditor(Zed):
    """An editor that runs commands in terminals, and allows every call."""

    def __init__(self) -> None:
        super().__init__()
        self.methods: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.refuses = False
        self.running = asyncio.Event()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._ended: dict[str, asyncio.Task[bytes]] = {}

    async def _answer(self, request: Request) -> Any:
        params = msgspec.json.decode(request.params)
        if not request.method.startswith("terminal/"):
            return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        schema.method_validator("params", "Request", request.method).validate(params)
        self.methods.append(request.method.removeprefix("terminal/"))
        match self.methods[-1]:
            case "create":
                if self.refuses:
                    raise PeerError(-32603, "Internal error", {"details": "no more\nterminals"})
                self.created.append(params)
                return {"terminalId": await self._create(params)}
            case "wait_for_exit":
                self.running.set()
                await asyncio.shield(self._ended[params["terminalId"]])
                return self._status(params["terminalId"])
            case "output":
                output = await self._ended[params["terminalId"]]
                status = self._status(params["terminalId"])
                return {"output": output.decode(), "truncated": False, "exitStatus": status}
            case _:
                self._kill(params["terminalId"])
                return {}

    async def _create(self, params: dict[str, Any]) -> str:
        process = await asyncio.create_subprocess_exec(
            *(params["command"], *params["args"]),
            cwd=params["cwd"],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        name = f"term-{len(self._processes)}"
        self._processes[name] = process
        self._ended[name] = asyncio.create_task(self._read(process))
        return name

    async def _read(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        output = await process.stdout.read()
        await process.wait()
        return output

    def _status(self, name: str) -> dict[str, Any]:
        code = self._processes[name].returncode
        return {"exitCode": None, "signal": "SIGKILL"} if code is None or code < 0 else {"exitCode": code}

    def _kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, signal.SIGKILL)

    async def wait_all(self) -> list[int | None]:
        return [await process.wait() for process in self._processes.values()]


async def run(zed: TerminalEditor, session: str, command: str, **more: Any) -> str:
    arguments = msgspec.json.encode({"command": command, **more}).decode()
    await zed.prompt(session, f"/call shell.run {arguments}")
    return zed.shown("agent_message_chunk")[-1]


async def test_a_command_runs_in_a_terminal_of_the_editor(make_host: HostFactory, tmp_path: Path):
    (tmp_path / "sub").mkdir()
    zed = TerminalEditor()
    async with make_host({}) as host, connected(host, TERMINALS, zed):
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        shown = await run(zed, session, "pwd; exit 3", cwd="sub")
        zed.refuses = True
        refused = await run(zed, session, "touch here")

    assert f"{tmp_path}/sub" in shown
    assert '"exit_code": 3' in shown
    assert zed.created[0]["cwd"] == f"{tmp_path}/sub"
    assert zed.methods == ["create", "wait_for_exit", "output", "release", "create"]
    assert "The editor did not run the command: Internal error: no more terminals" in refused
    assert not (tmp_path / "here").exists(), "it is not run elsewhere instead"


async def test_a_command_in_the_editor_gets_only_the_variables_that_servers_get(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", "/home/a 'quoted' $name")
    host = make_host({})
    for name in ("ANTHROPIC_API_KEY", "EDITOR_SECRET"):  # in the editor's environment
        monkeypatch.setenv(name, "canary")
    zed = TerminalEditor()
    async with host, connected(host, TERMINALS, zed):
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        shown = await run(zed, session, 'env; echo "it\'s $0"')

    assert "canary" not in shown
    assert "HOME=/home/a 'quoted' $name" in shown
    assert "it's /bin/sh" in shown


async def test_a_command_whose_time_is_over_is_ended_in_the_editor(make_host: HostFactory, tmp_path: Path):
    zed = TerminalEditor()
    async with make_host({}) as host, connected(host, TERMINALS, zed):
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        shown = await run(zed, session, "echo begun; sleep 600", timeout=1)
        codes_of_exit = await zed.wait_all()

    assert "begun" in shown
    assert zed.methods == ["create", "wait_for_exit", "kill", "output", "release"]
    assert codes_of_exit == [-9]


async def test_cancelling_the_turn_ends_the_command_in_the_editor(make_host: HostFactory, tmp_path: Path):
    zed = TerminalEditor()
    async with make_host({}) as host, connected(host, TERMINALS, zed):
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        turn = asyncio.create_task(zed.prompt(session, '/call shell.run {"command": "sleep 600"}'))
        await zed.running.wait()
        await zed.peer.notify("session/cancel", {"sessionId": session})
        reason = await turn
        codes_of_exit = await zed.wait_all()

    assert reason == "cancelled"
    assert zed.methods == ["create", "wait_for_exit", "release"]
    assert codes_of_exit == [-9]


@pytest.mark.parametrize("how", ["auto", "sandboxed"])
async def test_a_command_that_nobody_allows_runs_in_the_sandbox_and_not_in_the_editor(
    make_host: HostFactory, tmp_path: Path, how: str
):
    project = tmp_path / "project"
    project.mkdir()
    zed = TerminalEditor()
    async with make_host({}) as host, connected(host, TERMINALS, zed):
        session = (await zed.request("session/new", cwd=str(project), mcpServers=[]))["sessionId"]
        if how == "auto":
            await zed.request("session/set_mode", sessionId=session, modeId="auto")
        else:
            await zed.request(
                "session/set_config_option", sessionId=session, configId="trust", value="sandboxed"
            )
        shown = await run(zed, session, "echo inside")

    assert "inside" in shown
    assert zed.methods == []
