"""A test editor that talks raw JSON lines to a real `holdfast acp`; every line in both directions is validated."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.commands import ForkedProcess, start_holdfast
from tests.journeys.schema import MessageValidator

TIMEOUT_SECONDS = 30.0
MAX_LINE_BYTES = 32 * 1024 * 1024
SERVER = Path(__file__).with_name("server.py")
LIGHT_SERVER = Path(__file__).parents[1] / "light_server.py"
HOLDFAST = [sys.executable, "-m", "holdfast", "acp"]
"""The command as an editor starts it. By default, the tests fork it from a process that has imported its modules."""
SHORT_WAIT = {"HOLDFAST_LINKS_WAIT_SECONDS": "2"}
"""For tests with a server that never starts."""
CAPABILITIES: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}}


class RpcError(Exception):
    """An error response."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Editor:
    """Sends requests, keeps the updates in `received`, and answers the agent's requests from `answers`."""

    def __init__(self, process: "asyncio.subprocess.Process | ForkedAgent") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self._stdout = process.stdout
        self._validator = MessageValidator()
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._changed = asyncio.Event()
        self._next = 0
        self.received: list[tuple[str, dict[str, Any]]] = []
        """Every update, with its session."""
        self.agent_requests: list[tuple[str, Any]] = []
        """Every request of the agent: its method and parameters."""
        self.parse_errors: list[dict[str, Any]] = []
        """The errors for lines that were not requests."""
        self.answers: dict[str, Callable[[Any], Any]] = {
            "session/request_permission": always_choose("allow_once")
        }
        self.unanswered: set[str] = set()
        """Methods of the agent's requests that are never answered."""
        self._reading = asyncio.create_task(self._read())

    # Sending

    async def request(self, method: str, params: Any, *, checked: bool = True) -> Any:
        return await asyncio.wait_for(self.start_request(method, params, checked=checked), TIMEOUT_SECONDS)

    def start_request(self, method: str, params: Any, *, checked: bool = True) -> "asyncio.Future[Any]":
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        if checked:
            self._validator.check(message, by="client")
        else:
            self._validator._requests["client", self._next] = method
        future = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        self.send(message)
        return future

    def notify(self, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._validator.check(message, by="client")
        self.send(message)

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self.stdin.write(data)

    # Common requests

    async def initialize(self, capabilities: Any = None) -> Any:
        params = {"protocolVersion": 1, "clientCapabilities": capabilities or CAPABILITIES}
        return await self.request("initialize", params)

    async def new(self, cwd: Path, *servers: Any, **more: Any) -> str:
        answer = await self.request("session/new", {"cwd": str(cwd), "mcpServers": list(servers), **more})
        return answer["sessionId"]

    async def load(self, session: str, cwd: Path, *servers: Any) -> Any:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": list(servers)}
        return await self.request("session/load", params)

    async def resume(self, session: str, cwd: Path, *servers: Any) -> Any:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": list(servers)}
        return await self.request("session/resume", params)

    async def prompt(self, session: str, *texts: str) -> str:
        return (await self.request("session/prompt", prompt_params(session, *texts)))["stopReason"]

    def start_prompt(self, session: str, *texts: str) -> "asyncio.Future[Any]":
        return self.start_request("session/prompt", prompt_params(session, *texts))

    async def wait_until(self, condition: "Callable[[Editor], Any]") -> Any:
        """Wait until the condition holds, and return its value."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (value := condition(self)):
                self._changed.clear()
                await self._changed.wait()
            return value

    # Receiving

    def updates(self, session: str, *kinds: str) -> list[dict[str, Any]]:
        return [
            update
            for session_id, update in self.received
            if session_id == session and (not kinds or update["sessionUpdate"] in kinds)
        ]

    def reply_text(self, session: str) -> str:
        return "".join(update["content"]["text"] for update in self.updates(session, "agent_message_chunk"))

    def call_statuses(self, session: str) -> list[tuple[str, str]]:
        """The id and status of every update of a call."""
        steps = self.updates(session, "tool_call", "tool_call_update")
        return [(step["toolCallId"], step["status"]) for step in steps]

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            message = json.loads(line)
            if message.get("id", 0) is None:
                self.parse_errors.append(message["error"])
            else:
                self._validator.check(message, by="agent")
                self._on_message(message)
            self._changed.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("Holdfast has ended."))

    def _on_message(self, message: Any) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"])
            if future.done():
                return
            if "error" in message:
                future.set_exception(RpcError(message["error"]))
            else:
                future.set_result(message["result"])
        elif "id" not in message:
            if message["method"] == "session/update":
                self.received.append((message["params"]["sessionId"], message["params"]["update"]))
        else:
            self.agent_requests.append((message["method"], message["params"]))
            if message["method"] not in self.unanswered:
                answer = self.answers[message["method"]](message["params"])
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                self._validator.check(reply, by="client")
                self.send(reply)

    async def disconnect(self) -> int:
        """Close the agent's input and wait for the process to end."""
        self.stdin.close()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._reading
            return await self.process.wait()

    async def wait_ended(self) -> int:
        """Wait until the process has ended."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._reading
            return await self.process.wait()


class ForkedAgent:
    """A forked command with pipes, used like an `asyncio.subprocess.Process`."""

    def __init__(
        self, process: ForkedProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process = process
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout
        self._reading: asyncio.BaseTransport | None = None
        self.send_signal, self.kill, self.terminate = process.send_signal, process.kill, process.terminate

    @classmethod
    async def start(cls, words: list[str], environ: Mapping[str, str], log: int) -> "ForkedAgent":
        loop = asyncio.get_running_loop()
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        process = start_holdfast(words, their_input, their_output, log, cwd=Path("/"), env=environ)
        os.close(their_input)
        os.close(their_output)
        stdout = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        protocol = asyncio.StreamReaderProtocol(stdout)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(our_input, "rb"))
        transport, writing = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(our_output, "wb")
        )
        agent = cls(process, asyncio.StreamWriter(transport, writing, None, loop), stdout)
        agent._reading = reading
        return agent

    def close(self) -> None:
        """Close the pipes."""
        if not self.stdin.transport.is_closing() or self.stdin.transport.get_write_buffer_size():
            self.stdin.transport.abort()
        if self._reading is not None:
            self._reading.close()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)


@asynccontextmanager
async def editor(
    home: Path,
    *arguments: str,
    capabilities: Any = None,
    command: list[str] | None = None,
    environ: Mapping[str, str] | None = None,
    initialize: bool = True,
    log: int | None = None,
) -> AsyncIterator[Editor]:
    """An editor with its own Holdfast process, whose data is in `home`."""
    variables = environment(home, environ)
    with (home / "log").open("ab") as log_file:
        if command is None or command[0] == "-m":
            words = [*(command or ["acp"]), *arguments]
            process = await ForkedAgent.start(words, variables, log or log_file.fileno())
        else:
            process = await asyncio.create_subprocess_exec(
                *command,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log or log_file,
                env=variables,
                limit=MAX_LINE_BYTES,
                cwd="/",
            )
    connected = Editor(process)
    try:
        if initialize:
            await connected.initialize(capabilities)
        yield connected
        if process.returncode is None:
            assert await connected.disconnect() == 0, (home / "log").read_text()
        await connected._reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        connected._reading.cancel()
        if isinstance(process, ForkedAgent):
            process.close()
            await asyncio.sleep(0)  # the transports close their pipes


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    (home / "config.toml").touch()
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **inherited,
        "HOLDFAST_CONFIG": str(home / "config.toml"),
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(home / "host.json"),
        "HOLDFAST_STAGE_ENABLED": "false",  # the same tools with and without an installed browser
        **(more or {}),
    }


def prompt_params(session: str, *texts: str) -> Any:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text} for text in texts]}


def tools_server(name: str = "tools", *flags: str, **env: str) -> dict[str, Any]:
    """The entry of the tools server, sent by the client."""
    pairs = [{"name": key, "value": value} for key, value in env.items()]
    return {"name": name, "command": sys.executable, "args": [str(SERVER), *flags], "env": pairs}


def confined_tools_server(folder: Path, name: str = "tools", *flags: str) -> dict[str, Any]:
    """The same server, copied to a folder of the session: in the sandbox it sees no other files of the project."""
    copy = Path(shutil.copy(SERVER, folder))
    (folder / "tests").mkdir(exist_ok=True)
    shutil.copy(LIGHT_SERVER, folder / "tests")
    return {"name": name, "command": sys.executable, "args": [str(copy), *flags], "env": []}


def always_choose(option: str) -> Callable[[Any], Any]:
    """A user who always chooses this option."""
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}
