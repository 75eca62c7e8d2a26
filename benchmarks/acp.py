"""`holdfast acp` against agents on the official ACP SDKs, which store nothing.

The same raw client talks to all of them over pipes; they take turns in one run.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.result import Result
from holdfast.model.context import SessionContext
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import NewSession

ROUNDS = 5
CHUNKS = 10_000
STREAM_UPDATES = int(os.environ.get("HOLDFAST_STREAM", "1000000"))
SESSIONS = 10_000
AGENTS = Path(__file__).resolve().parent / "agents"
PACKAGES = Path(__file__).resolve().parent.parent / "peers" / "node_modules"
HOLDFAST = [str(Path(sys.executable).with_name("holdfast")), "acp"]
OURS = [sys.executable, str(AGENTS / "ours.py")]
SDK = [sys.executable, str(AGENTS / "sdk.py")]
TYPESCRIPT = [str(PACKAGES / ".bin" / "node"), str(AGENTS / "typescript.mjs"), str(PACKAGES)]


def results() -> list[Result]:
    ready = _interleave(
        lambda: _initialize_ms(HOLDFAST), lambda: _initialize_ms(SDK), lambda: _initialize_ms(TYPESCRIPT)
    )
    streamed = _interleave(
        lambda: _updates_per_second(OURS),
        lambda: _updates_per_second(SDK),
        lambda: _updates_per_second(TYPESCRIPT),
    )
    loaded = _interleave(lambda: _load_ms(OURS), lambda: _load_ms(SDK))
    return [
        _result("ready.ms", "ms", ready[0], ready[1], "an agent on the Python ACP SDK", "<= 0.25"),
        _result("ready.ms", "ms", ready[0], ready[2], "an agent on the TypeScript ACP SDK"),
        _result(
            "stream.per_s",
            "updates/s",
            streamed[0],
            streamed[1],
            "the Python ACP SDK, storing nothing",
            ">= 2",
        ),
        _result(
            "stream.per_s", "updates/s", streamed[0], streamed[2], "the TypeScript ACP SDK, storing nothing"
        ),
        _result("load10k.ms", "ms", loaded[0], loaded[1], "the Python ACP SDK, from memory", "<= 0.3"),
        _result("list10k.ms", "ms", _list_ms(), 50, f"the bound, over {SESSIONS:,} sessions", "<= 1"),
        slow_reader(STREAM_UPDATES),
    ]


def _result(name: str, unit: str, ours: float, peer: float, peer_name: str, goal: str = "") -> Result:
    return Result(name=f"acp.{name}", ours=ours, peer=peer, peer_name=peer_name, unit=unit, goal=goal)


def _interleave(*measures: Callable[[], float]) -> list[float]:
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


class Client:
    """Sends raw lines to an agent; updates are counted, not decoded."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], pid: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.pid = pid
        self.session = ""
        self._next = 0

    def send(self, method: str, params: Any) -> None:
        self._next += 1
        line = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self.stdin.write(json.dumps(line).encode() + b"\n")
        self.stdin.flush()

    def receive(self) -> tuple[Any, int]:
        """The result, and how many updates came before it."""
        updates = 0
        while line := self.stdout.readline():
            if b'"agent_message_chunk"' in line:
                updates += 1
            elif b'"id"' in line and (message := json.loads(line)).get("id") == self._next:
                return message["result"], updates
        raise RuntimeError("The agent has ended.")

    def request(self, method: str, params: Any) -> tuple[Any, int]:
        self.send(method, params)
        return self.receive()

    def prompt(self, chunks: int) -> tuple[Any, int]:
        prompt = [{"type": "text", "text": str(chunks)}]
        return self.request("session/prompt", {"sessionId": self.session, "prompt": prompt})


@contextmanager
def agent(command: list[str], home: str) -> Iterator[Client]:
    """An initialized agent."""
    environ = {
        **os.environ,
        "HOLDFAST_DATA_DIR": f"{home}/data",
        "HOLDFAST_SERVERS_USER_FILE": f"{home}/mcp.json",
        "HOLDFAST_SERVERS_HOST_FILE": f"{home}/host.json",
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            client = Client(process.stdin, process.stdout, process.pid)
            client.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            yield client
            process.stdin.close()
            process.wait(10)
        finally:
            process.kill()


@contextmanager
def session(command: list[str]) -> Iterator[Client]:
    """An agent with an open session."""
    with tempfile.TemporaryDirectory() as home, agent(command, home) as client:
        client.session = client.request("session/new", {"cwd": home, "mcpServers": []})[0]["sessionId"]
        client.request(
            "session/prompt", {"sessionId": client.session, "prompt": [{"type": "text", "text": "100"}]}
        )
        yield client


def _initialize_ms(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        with agent(command, home):
            return (time.perf_counter() - began) * 1000


def _updates_per_second(command: list[str]) -> float:
    with session(command) as client:
        began = time.perf_counter()
        _, updates = client.prompt(CHUNKS)
        assert updates == CHUNKS
        return CHUNKS / (time.perf_counter() - began)


def _load_ms(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as home, agent(command, home) as client:
        opened = {"cwd": os.path.realpath(home), "mcpServers": list[Any]()}
        client.session = client.request("session/new", opened)[0]["sessionId"]
        client.prompt(CHUNKS)
        if command is OURS:
            client.request("session/close", {"sessionId": client.session})
        began = time.perf_counter()
        _, updates = client.request("session/load", {"sessionId": client.session, **opened})
        seconds = time.perf_counter() - began
        assert updates == CHUNKS
        return seconds * 1000


def _list_ms() -> float:
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(_fill(Path(home) / "data" / "holdfast.db"))
        with agent(HOLDFAST, home) as client:
            client.request("session/list", {})
            figures: list[float] = []
            for _ in range(20):
                began = time.perf_counter()
                client.request("session/list", {})
                figures.append((time.perf_counter() - began) * 1000)
    return statistics.median(figures)


async def _fill(database: Path) -> None:
    def create(trust: Trust) -> NewSession:
        context = SessionContext(session_id=new_session_id(), trust_level=trust, cwd="/tmp")
        return NewSession(context=context, title="one of many")

    async with SqliteStore(database) as store:
        await store.write(lambda tx: [tx.create(create(Trust.DIRECT)) for _ in range(SESSIONS)])


def slow_reader(updates: int) -> Result:
    """How much memory grows while streaming to a slow reader."""
    with session(OURS) as client:
        before = _peak_memory(client.pid)
        client.send(
            "session/prompt",
            {"sessionId": client.session, "prompt": [{"type": "text", "text": str(updates)}]},
        )
        time.sleep(1.0)  # read nothing at first: the agent must wait
        client.receive()
        growth = (_peak_memory(client.pid) - before) / 2**20
    return _result("slow_reader.mb", "MB", growth, 32, f"the bound, over {updates:,} updates", "<= 1")


def _peak_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
