"""The gateway against proxies that offer one stdio server over HTTP: the same server, the same load, one run.

FastMCP's proxy is in our environment; mcp-proxy and mcpo (which offers tools as plain HTTP) share another one. Each figure is compared with
the best of them. A gateway keeps its clients apart and records every call; the proxies do neither.

`gateway.bare` compares the gateway with the least that one CPython process can do for a call: forward raw frames, on the same
libraries, without sessions, tokens, limits and record. No gateway in one such process can be faster than that.
"""

import asyncio
import json
import os
import socket
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.environment import python_of
from benchmarks.http_load import Connection, load, message, open_session
from benchmarks.result import Result
from benchmarks.wire import SERVERS, TEXT
from holdfast.wire.mcp.eras import CAPABILITIES_KEY, CLIENT_KEY, VERSION_KEY

SECONDS, ROUNDS, CONCURRENT = 2.0, 3, 16
FEW, MANY = 20, 200
MAX_KB = 60.0
_BARE = "a bare forwarder of frames: the bound of one CPython process"
CALL = message("tools/call", {"name": "echo", "arguments": {"text": TEXT}})
FAST, SDK, LIGHT = ([sys.executable, str(SERVERS / name)] for name in ("ours.py", "sdk.py", "light.py"))
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """A process that serves MCP over HTTP. Each handle names a session, whose URL is `/s/HANDLE/mcp`."""

    url: str
    handles: list[str]
    pid: int

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def kilobytes(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Something that calls the echo tool when it gets a request, and what was measured."""

    url: str
    headers: dict[str, str]
    body: bytes = CALL
    expected: bytes = b'"content"'
    rates: list[float] = field(default_factory=list[float])
    p50s: list[float] = field(default_factory=list[float])

    async def measure(self) -> None:
        for workers, seconds, found in ((CONCURRENT, SECONDS, self.rates), (1, SECONDS / 2, self.p50s)):
            run = await load(
                self.url, self.headers, self.body, workers=workers, seconds=seconds, expected=self.expected
            )
            found.append(run.per_second if workers > 1 else run.p50_ms)


def results() -> list[Result]:
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    async with AsyncExitStack() as stack:
        proxies: dict[str, Target] = {}
        for name, url in {
            "FastMCP proxy": (await stack.enter_async_context(_serve("fastmcp_proxy.py", *FAST))).url,
            "mcp-proxy": await stack.enter_async_context(_run_proxy("mcp-proxy", "/mcp", *FAST)),
        }.items():
            proxies[name] = Target(url, await open_session(url))
        url = await stack.enter_async_context(_run_proxy("mcpo", "/echo", *FAST))
        proxies["mcpo"] = Target(url, {}, json.dumps({"text": TEXT}).encode(), TEXT.encode())
        ours: list[Target] = []
        for store in ("memory", "durable"):
            url = (await stack.enter_async_context(_serve("gateway.py", store, "0", *FAST))).url
            ours.append(Target(url, await open_session(url)))
        memory, durable = ours
        url = (await stack.enter_async_context(_serve("bare_forwarder.py", *FAST))).url
        bare = Target(url, await open_session(url))
        for _ in range(ROUNDS):  # in turns, so that a busy moment of the machine affects all of them
            for target in (*proxies.values(), bare, memory, durable):
                await target.measure()
    fastest = max(proxies, key=lambda name: max(proxies[name].rates))
    quickest = min(proxies, key=lambda name: min(proxies[name].p50s))
    rate = max(proxies[fastest].rates)
    return [
        Result(
            name="gateway.calls_per_s",
            ours=max(memory.rates),
            peer=rate,
            peer_name=fastest,
            unit="calls/s",
            goal=">= 10",
        ),
        Result(
            name="gateway.p50",
            ours=min(memory.p50s),
            peer=min(proxies[quickest].p50s),
            peer_name=quickest,
            unit="ms",
            goal="<= 0.15",
        ),
        Result(
            name="gateway.durable.calls_per_s",
            ours=max(durable.rates),
            peer=rate,
            peer_name=fastest,
            unit="calls/s",
            goal=">= 4",
        ),
        Result(
            name="gateway.bare",
            ours=max(memory.rates),
            peer=max(bare.rates),
            peer_name=_BARE,
            unit="calls/s",
        ),
        Result(
            name="gateway.bare.p50", ours=min(memory.p50s), peer=min(bare.p50s), peer_name=_BARE, unit="ms"
        ),
        *(
            Result(
                name=f"gateway.calls_per_s.{name.replace(' ', '_').lower()}",
                ours=max(memory.rates),
                peer=max(target.rates),
                peer_name=name,
                unit="calls/s",
            )
            for name, target in proxies.items()
            if name != fastest
        ),
        *await _sdk_upstream(),
        await _opening(),
        *await _many(),
    ]


async def _sdk_upstream() -> list[Result]:
    """A call of the official SDK's fastest server: through the gateway, directly over HTTP, and over its pipe, in turns."""
    through: list[float] = []
    direct: list[float] = []
    pipe: list[float] = []
    async with (
        _serve("gateway.py", "memory", "0", *SDK) as served,
        _serve("sdk.py", "--http") as sdk,
        _pipe(SDK) as (stdin, stdout),
    ):
        targets = [
            (one.url, await open_session(one.url), times) for one, times in ((served, through), (sdk, direct))
        ]
        for _ in range(2 * ROUNDS):
            for url, headers, times in targets:
                times.append((await load(url, headers, CALL, workers=1, seconds=SECONDS / 2)).p50_ms)
            pipe.append(await _direct_p50(stdin, stdout))
    return [
        Result(
            name="gateway.sdk_upstream.p50",
            ours=min(through),
            peer=min(pipe),
            peer_name="the same server over its pipe, without HTTP and a client",
            unit="ms",
            goal="<= 1.6",
        ),
        Result(
            name="gateway.sdk_upstream.p50_of_http",
            ours=min(through),
            peer=min(direct),
            peer_name="the same server, served over HTTP by the SDK",
            unit="ms",
        ),
    ]


async def _direct_p50(stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> float:
    times: list[float] = []
    until = time.perf_counter() + SECONDS / 2
    while (sent := time.perf_counter()) < until:
        stdin.write(CALL + b"\n")
        await stdout.readline()
        times.append(time.perf_counter() - sent)
    return statistics.median(times) * 1000


async def _opening() -> Result:
    """From `initialize` to the first list of tools, against starting the same server and asking it for the same."""
    ours: list[float] = []
    direct: list[float] = []
    listing = message("tools/list", {}, 2)
    async with _serve("gateway.py", "memory", "0", *FAST) as served:
        for _ in range(6):
            began = time.perf_counter()
            headers = await open_session(served.url)
            connection = Connection(served.url)
            await connection.send(connection.encode(listing, headers))
            ours.append(time.perf_counter() - began)
            await connection.close()
            began = time.perf_counter()
            async with _pipe(FAST) as (stdin, stdout):
                stdin.write(listing + b"\n")
                await stdout.readline()
                direct.append(time.perf_counter() - began)
    return Result(
        name="gateway.open",
        ours=min(ours) * 1000,
        peer=min(direct) * 1000,
        peer_name="starting the server",
        unit="ms",
        goal="<= 1.2",
    )


async def _many() -> list[Result]:
    """The memory of an idle session, and the CPU time of a call while few, and while many, sessions are open."""
    async with _serve("gateway.py", "memory", str(FEW + MANY), *LIGHT) as served:
        first, rest = served.handles[:FEW], served.handles[FEW:]
        for handle in first:
            await _call_modern(served, handle)
        alone = await _cpu_per_call(served, first[0])
        before = served.kilobytes
        for handle in rest:
            await _call_modern(served, handle)
        each = (served.kilobytes - before) / len(rest)
        among = await _cpu_per_call(served, first[0])
    return [
        Result(
            name="gateway.idle_kb",
            ours=each,
            peer=MAX_KB,
            peer_name="what an idle session may take",
            unit="kB",
            goal="<= 1",
        ),
        Result(
            name="gateway.cpu_per_call",
            ours=among,
            peer=alone,
            peer_name=f"beside {FEW} sessions, not {FEW + MANY}",
            unit="µs",
            goal="<= 1.25",
        ),
    ]


_META: dict[str, object] = {
    VERSION_KEY: "2026-07-28",
    CAPABILITIES_KEY: {},
    CLIENT_KEY: {"name": "load", "version": "1"},
}
_MODERN_HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
_MODERN_CALL = message("tools/call", {"name": "echo", "arguments": {"text": TEXT}, "_meta": _META})


def _url(served: Served, handle: str) -> str:
    return served.url.replace("/mcp", f"/s/{handle}/mcp")


async def _call_modern(served: Served, handle: str) -> None:
    connection = Connection(_url(served, handle))
    await connection.send(connection.encode(_MODERN_CALL, _MODERN_HEADERS))
    await connection.close()


async def _cpu_per_call(served: Served, handle: str) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        before = served.cpu_seconds
        run = await load(_url(served, handle), _MODERN_HEADERS, _MODERN_CALL, workers=4, seconds=SECONDS)
        best = min(best, (served.cpu_seconds - before) / run.count)
    return best * 1e6


@asynccontextmanager
async def _run_proxy(program: str, path: str, *command: str) -> AsyncIterator[str]:
    """Run a proxy of the separate environment in front of this server. Yields its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        str(Path(python_of("proxies")).with_name(program)),
        *("--host", "127.0.0.1", "--port", str(port), "--", *command),
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        await _wait_for_port(port)
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        await process.wait()


async def _wait_for_port(port: int | None) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


@asynccontextmanager
async def _serve(program: str, *arguments: str) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVERS / program), *arguments, stdout=PIPE, limit=1 << 20
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        said = json.loads(line)
        await _wait_for_port(urlsplit(str(said["url"])).port)
        yield Served(said["url"], said["handles"], process.pid)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _pipe(command: list[str]) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.StreamReader]]:
    """A server after its handshake."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    info = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "load", "version": "1"},
    }
    process.stdin.write(message("initialize", info) + b"\n")
    await process.stdout.readline()
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        await process.wait()
