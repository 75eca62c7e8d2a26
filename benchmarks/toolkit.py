"""Servers written with the toolkit against the SDK's MCPServer and FastMCP: the same tool, the same client.

The client is ours over pipes, and a few raw keep-alive connections over HTTP, so that the client is not what is
measured. All use the modern era, and all servers run with their default set-up: able to report progress.
"""

import asyncio
import json
import socket
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar, cast

import uvloop

from benchmarks.result import Result
from holdfast.toolkit import Toolbox
from holdfast.toolkit.call import Call
from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.messages import Raw
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

ROUNDS = 5
SECONDS = 0.6
CONCURRENT = 16
TEXT = "x" * 200
SERVERS = Path(__file__).resolve().parent / "servers"
ME = OwnInfo(implementation=Implementation("benchmark", "1"))
PEERS = {"MCPServer of the mcp SDK": "mcpserver_echo.py", "FastMCP": "fastmcp_echo.py"}
OURS = "toolkit_echo.py"
MANY, FEW = 1000, 10


@dataclass(frozen=True, slots=True)
class StdioFigures:
    """The figures of one server in one round."""

    ready_seconds: float
    calls_per_s: float


def results() -> list[Result]:
    """Measure all servers in turns."""
    scripts = (OURS, *PEERS.values())
    stdio: dict[str, list[StdioFigures]] = {script: [] for script in scripts}
    http: dict[str, list[float]] = {script: [] for script in scripts}
    for _ in range(ROUNDS):
        for script in scripts:
            stdio[script].append(asyncio.run(_over_stdio(script)))
            http[script].append(uvloop.run(_over_http(script)))
    sparse, crowded = asyncio.run(_dispatch(FEW, MANY))
    return [
        *_compared(
            "toolkit.stdio.ready", "ms", "<= 0.35", stdio, lambda figures: figures.ready_seconds * 1000
        ),
        *_compared(
            "toolkit.stdio.calls_per_s", "calls/s", ">= 6", stdio, lambda figures: figures.calls_per_s
        ),
        *_compared("toolkit.http.calls_per_s", "calls/s", ">= 3", http, lambda figure: figure),
        Result(
            name="toolkit.tools_1000.us",
            ours=crowded,
            peer=sparse,
            peer_name=f"a call with {FEW} tools registered, ours with {MANY:,}",
            unit="us",
            goal="<= 1.2",
        ),
        Result(
            name="toolkit.dispatch.us",
            ours=sparse,
            peer=80,
            peer_name="the bound, for a call without the wire",
            unit="us",
            goal="<= 1",
        ),
    ]


T = TypeVar("T")


def _compared(
    name: str, unit: str, goal: str, figures: dict[str, list[T]], figure: Callable[[T], float]
) -> Iterator[Result]:
    ours = statistics.median(map(figure, figures[OURS]))
    for peer_name, script in PEERS.items():
        peer = statistics.median(map(figure, figures[script]))
        yield Result(name=name, ours=ours, peer=peer, peer_name=peer_name, unit=unit, goal=goal)


async def _over_stdio(script: str) -> StdioFigures:
    began = perf_counter()
    process = subprocess.Popen(
        [sys.executable, SERVERS / script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with connect_pipes(Peer(), process.stdout, process.stdin) as peer:
            client = await negotiate(peer, ME)
            ready = perf_counter() - began

            async def call() -> None:
                result = await client.call_tool("echo", {"text": TEXT})
                assert not result.is_error

            return StdioFigures(ready, await _rate(call))
    finally:
        process.kill()
        process.wait()


async def _rate(call: Callable[[], Awaitable[None]]) -> float:
    await _calls(call, SECONDS / 4)  # warm up
    began = perf_counter()
    counts = await asyncio.gather(*(_calls(call, SECONDS) for _ in range(CONCURRENT)))
    return sum(counts) / (perf_counter() - began)


async def _calls(call: Callable[[], Awaitable[None]], seconds: float) -> int:
    count, end = 0, perf_counter() + seconds
    while perf_counter() < end:
        await call()
        count += 1
    return count


async def _over_http(script: str) -> float:
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, SERVERS / script, "--http", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    try:
        await _wait_for_port(port)
        request = _request(port)
        async with _connections(port) as connections:
            calls = [partial(connection.post, request) for connection in connections]
            await asyncio.gather(*(_calls(call, SECONDS / 4) for call in calls))  # warm up
            began = perf_counter()
            counts = await asyncio.gather(*(_calls(call, SECONDS) for call in calls))
            return sum(counts) / (perf_counter() - began)
    finally:
        process.kill()
        process.wait()


class RawHttpConnection(asyncio.Protocol):
    """One keep-alive connection with a minimal HTTP parser."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            assert head.startswith(b"HTTP/1.1 200"), head
            assert b'"isError":true' not in body
            self._answered.set_result(None)

    async def post(self, request: bytes) -> None:
        self._received = b""
        self._answered = self._loop.create_future()
        self.transport.write(request)
        await self._answered


def _request(port: int) -> bytes:
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "echo",
                "arguments": {"text": TEXT},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
                },
            },
        },
        separators=(",", ":"),
    )
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n{body}".encode()


@asynccontextmanager
async def _connections(port: int) -> AsyncIterator[list[RawHttpConnection]]:
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(RawHttpConnection, "127.0.0.1", port))[1] for _ in range(CONCURRENT)
    ]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.transport.close()


async def _wait_for_port(port: int) -> None:
    for _ in range(2000):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
    raise TimeoutError(f"Nothing listens on port {port}.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _dispatch(*sizes: int) -> list[float]:
    """Microseconds of a call besides its handler, by the number of tools: the best of many batches, in turns."""
    dispatchers = [_box(size).dispatcher() for size in sizes]
    arguments = Raw(b'{"text":"%b"}' % TEXT.encode())
    best = [float("inf")] * len(sizes)
    for _ in range(40):
        for number, dispatcher in enumerate(dispatchers):
            began = perf_counter()
            for _ in range(300):
                await dispatcher.dispatch(Call(tool="echo"), arguments)
            best[number] = min(best[number], (perf_counter() - began) / 300 * 1e6)
    return best


def _box(size: int) -> Toolbox:
    box = Toolbox("echo")

    async def echo(text: str) -> str:
        """Echo."""
        return text

    for number in range(size - 1):
        box.tool(operation="query", name=f"tool_{number}")(echo)
    box.tool(operation="query")(echo)
    return box
