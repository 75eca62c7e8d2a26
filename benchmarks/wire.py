"""The wire over stdio: our client and server against the official SDK's client and server.

Both use the modern era and call an echo tool with 200 bytes of text, alternating in one run.
"""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import msgspec
from mcp.client.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from benchmarks.result import Result
from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

ROUNDS = 5
SECONDS = 0.7  # per figure and round
CONCURRENT = 16
TEXT = "x" * 200
SERVERS = Path(__file__).resolve().parent / "servers"
ME = OwnInfo(implementation=Implementation("benchmark", "1"))

Call = Callable[[], Awaitable[str]]
"""Calls the echo tool once and returns its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one round."""

    ready: float
    p50: float
    calls_per_s: float


def results() -> list[Result]:
    ours: list[Figures] = []
    peer: list[Figures] = []
    for _ in range(ROUNDS):
        ours.append(asyncio.run(measure(our_echo)))
        peer.append(asyncio.run(measure(sdk_echo)))

    def compare(name: str, unit: str, goal: str, figure: Callable[[Figures], float]) -> Result:
        return Result(
            name=f"wire.stdio.{name}",
            ours=statistics.median(map(figure, ours)),
            peer=statistics.median(map(figure, peer)),
            peer_name="mcp SDK client and server",
            unit=unit,
            goal=goal,
        )

    return [
        compare("calls_per_s", "calls/s", ">= 10", lambda figures: figures.calls_per_s),
        compare("p50", "ms", "<= 0.25", lambda figures: figures.p50 * 1000),
        compare("ready", "ms", "<= 0.2", lambda figures: figures.ready * 1000),
    ]


async def measure(connect: Callable[[], AbstractAsyncContextManager[Call]]) -> Figures:
    started = perf_counter()
    async with connect() as call:
        ready = perf_counter() - started
        assert await call() == TEXT
        await calls_for(SECONDS / 4, call)  # warm up
        sequential = await calls_for(SECONDS, call)
        started = perf_counter()
        concurrent = await asyncio.gather(*(calls_for(SECONDS, call) for _ in range(CONCURRENT)))
        calls_per_s = sum(map(len, concurrent)) / (perf_counter() - started)
    return Figures(ready=ready, p50=statistics.median(sequential), calls_per_s=calls_per_s)


async def calls_for(seconds: float, call: Call) -> list[float]:
    """Call repeatedly; return the duration of each call."""
    times: list[float] = []
    now = perf_counter()
    end = now + seconds
    while now < end:
        started = now
        await call()
        now = perf_counter()
        times.append(now - started)
    return times


class Block(msgspec.Struct):
    text: str


@asynccontextmanager
async def our_echo() -> AsyncIterator[Call]:
    process = start("ours.py")
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with connect_pipes(Peer(), process.stdout, process.stdin) as peer:
            client = await negotiate(peer, ME)

            async def call() -> str:
                result = await client.call_tool("echo", {"text": TEXT})
                return msgspec.json.decode(result.content[0], type=Block).text

            yield call
    finally:
        process.kill()
        process.wait()


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, SERVERS / script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@asynccontextmanager
async def sdk_echo() -> AsyncIterator[Call]:
    async with SdkClient(
        StdioServerParameters(command=sys.executable, args=[str(SERVERS / "sdk.py")])
    ) as client:

        async def call() -> str:
            result = await client.call_tool("echo", {"text": TEXT})
            (block,) = result.content
            assert isinstance(block, TextContent)
            return block.text

        yield call
