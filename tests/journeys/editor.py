"""An editor in raw JSON lines, in front of a real `holdfast acp`: every line both ways is held against the schema."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast
from tests.journeys.schema import Line

PATIENCE = 30.0
SERVER = Path(__file__).with_name("server.py")
HOLDFAST = [sys.executable, "-m", "holdfast", "acp"]
IMPATIENT = {"HOLDFAST_LINKS_WAIT_SECONDS": "2"}
"""For tests with a server that never comes up."""
CAPABILITIES: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}}


class Refused(Exception):
    """An answer that says no."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Editor:
    """Asks, hears updates in `heard`, and answers what it is asked by `answers`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self._stdout = process.stdout
        self._line = Line()
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._changed = asyncio.Event()
        self._next = 0
        self.heard: list[tuple[str, dict[str, Any]]] = []
        """Every update: the session, and what it was told."""
        self.asked: list[tuple[str, Any]] = []
        """Every request of the agent's."""
        self.broken: list[dict[str, Any]] = []
        """Answers to lines that were no requests."""
        self.answers: dict[str, Callable[[Any], Any]] = {"session/request_permission": chooses("allow_once")}
        self.silent: set[str] = set()
        """What is asked of the editor and never answered."""
        self._reading = asyncio.create_task(self._read())

    # Talking

    async def ask(self, method: str, params: Any, *, checked: bool = True) -> Any:
        return await asyncio.wait_for(self.begin(method, params, checked=checked), PATIENCE)

    def begin(self, method: str, params: Any, *, checked: bool = True) -> "asyncio.Future[Any]":
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        if checked:
            self._line.check(message, by="client")
        else:
            self._line._asked["client", self._next] = method
        future = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        self.send(message)
        return future

    def notify(self, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._line.check(message, by="client")
        self.send(message)

    def send(self, message: Any) -> None:
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        self.stdin.write(data)

    # The usual

    async def initialize(self, capabilities: Any = None) -> Any:
        params = {"protocolVersion": 1, "clientCapabilities": capabilities or CAPABILITIES}
        return await self.ask("initialize", params)

    async def new(self, cwd: Path, *servers: Any, **more: Any) -> str:
        answer = await self.ask("session/new", {"cwd": str(cwd), "mcpServers": list(servers), **more})
        return answer["sessionId"]

    async def load(self, session: str, cwd: Path, *servers: Any) -> Any:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": list(servers)}
        return await self.ask("session/load", params)

    async def resume(self, session: str, cwd: Path, *servers: Any) -> Any:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": list(servers)}
        return await self.ask("session/resume", params)

    async def prompt(self, session: str, *texts: str) -> str:
        return (await self.ask("session/prompt", words(session, *texts)))["stopReason"]

    def begin_prompt(self, session: str, *texts: str) -> "asyncio.Future[Any]":
        return self.begin("session/prompt", words(session, *texts))

    async def until(self, met: "Callable[[Editor], Any]") -> Any:
        """Wait for something to be true of what was heard or asked."""
        async with asyncio.timeout(PATIENCE):
            while not (found := met(self)):
                self._changed.clear()
                await self._changed.wait()
            return found

    # What was heard

    def updates(self, session: str, *kinds: str) -> list[dict[str, Any]]:
        return [
            update
            for told, update in self.heard
            if told == session and (not kinds or update["sessionUpdate"] in kinds)
        ]

    def said(self, session: str) -> str:
        return "".join(update["content"]["text"] for update in self.updates(session, "agent_message_chunk"))

    def called(self, session: str) -> list[tuple[str, str]]:
        """Every step of every call: its id and status."""
        steps = self.updates(session, "tool_call", "tool_call_update")
        return [(step["toolCallId"], step["status"]) for step in steps]

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            message = json.loads(line)
            if message.get("id", 0) is None:
                self.broken.append(message["error"])
            else:
                self._line.check(message, by="agent")
                self._hear(message)
            self._changed.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("Holdfast left."))

    def _hear(self, message: Any) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"])
            if future.done():
                return
            if "error" in message:
                future.set_exception(Refused(message["error"]))
            else:
                future.set_result(message["result"])
        elif "id" not in message:
            if message["method"] == "session/update":
                self.heard.append((message["params"]["sessionId"], message["params"]["update"]))
        else:
            self.asked.append((message["method"], message["params"]))
            if message["method"] not in self.silent:
                answer = self.answers[message["method"]](message["params"])
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                self._line.check(reply, by="client")
                self.send(reply)

    async def leave(self) -> int:
        """Close our side and wait for theirs."""
        self.stdin.close()
        async with asyncio.timeout(PATIENCE):
            await self._reading
            return await self.process.wait()

    async def gone(self) -> int:
        """Wait until the process has ended by itself."""
        async with asyncio.timeout(PATIENCE):
            await self._reading
            return await self.process.wait()


@asynccontextmanager
async def editor(
    home: Path,
    *arguments: str,
    capabilities: Any = None,
    command: list[str] | None = None,
    environ: Mapping[str, str] | None = None,
    introduced: bool = True,
    log: int | None = None,
) -> AsyncIterator[Editor]:
    """An editor with its own Holdfast, whose memory is in `home`."""
    with (home / "log").open("ab") as kept:
        process = await asyncio.create_subprocess_exec(
            *(command or HOLDFAST),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log or kept,
            env=environment(home, environ),
            limit=32 * 1024 * 1024,
            cwd="/",
        )
    found = Editor(process)
    try:
        if introduced:
            await found.initialize(capabilities)
        yield found
        if process.returncode is None:
            assert await found.leave() == 0, (home / "log").read_text()
        await found._reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        found._reading.cancel()


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    (home / "config.toml").touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **kept,
        "HOLDFAST_CONFIG": str(home / "config.toml"),
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(home / "host.json"),
        **(more or {}),
    }


def words(session: str, *texts: str) -> Any:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text} for text in texts]}


def tools(name: str = "tools", *flags: str, **env: str) -> dict[str, Any]:
    """Our own server, brought by the client."""
    pairs = [{"name": key, "value": value} for key, value in env.items()]
    return {"name": name, "command": sys.executable, "args": [str(SERVER), *flags], "env": pairs}


def tools_in(folder: Path, name: str = "tools", *flags: str) -> dict[str, Any]:
    """The same server, out of a folder of the session: behind walls it is shown nothing else of ours."""
    copy = Path(shutil.copy(SERVER, folder))
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(holdfast.__file__).parent, folder / "holdfast", ignore=without, dirs_exist_ok=True)
    return {"name": name, "command": sys.executable, "args": [str(copy), *flags], "env": []}


def chooses(option: str) -> Callable[[Any], Any]:
    """A person who always answers the same."""
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}
