"""Many short runs: each starts a stdio server, lists its tools, makes three calls and ends. 16 runs at once.

Our runs are sessions that are not kept, of a host with a store on disk, which gets the audit's records. The peer is the MCP SDK's client.
Both take turns, each in a process of its own. After the first quarter, the memory and the descriptors of our process must stay as they are.
"""

import asyncio
import gc
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from mcp.client.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters

from benchmarks.links import ARGUMENTS, OURS, entry, open_host
from benchmarks.result import Result
from benchmarks.wire import SERVERS

RUNS = int(os.environ.get("HOLDFAST_SHORT_RUNS", "1000"))
OPENINGS, WARM_UP_SECONDS = 15, 1.0
TURNS, CONCURRENT, CALLS = 20, 16, 3
MAX_KB_PER_RUN = 2.0  # the cache of SQLite's pages grows with the audit, up to 2 MB
MAX_RATIO = 1.05

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn of runs took, and what the process uses after it."""

    ms_per_run: float
    resident_kb: float
    descriptors: int


def results() -> list[Result]:
    ours, theirs = _take_turns()
    settled, last = ours[len(ours) // 4 - 1], ours[-1]
    runs_between = RUNS * 3 // 4
    return [
        _compare_opening(),
        Result(
            name="short_runs.time",
            ours=statistics.median(turn.ms_per_run for turn in ours),
            peer=statistics.median(turn.ms_per_run for turn in theirs),
            peer_name=f"the MCP SDK's client, {CONCURRENT} at once",
            unit="ms",
            goal=f"<= {MAX_RATIO}",
        ),
        Result(
            name="short_runs.memory",
            ours=(last.resident_kb - settled.resident_kb) / runs_between,
            peer=MAX_KB_PER_RUN,
            peer_name=f"what one of the last {runs_between} runs may leave behind",
            unit="KB",
            goal="<= 1",
        ),
        Result(
            name="short_runs.descriptors",
            ours=last.descriptors,
            peer=settled.descriptors,
            peer_name=f"after {RUNS // 4} runs; ours: after {RUNS}",
            unit="open",
            goal="<= 1",
        ),
    ]


def _compare_opening() -> Result:
    cold, warm = asyncio.run(_measure_opening())
    return Result(
        name="short_runs.warm",
        ours=warm,
        peer=cold,
        peer_name="opening a session with a toolkit server; ours: with a server that was started in advance",
        unit="ms",
        goal="<= 0.3",
    )


async def _measure_opening() -> tuple[float, float]:
    """The median milliseconds to open a session, without and with a server that waits, taking turns."""
    echo = entry([OURS[0], str(SERVERS / "toolkit_echo.py")])
    times: dict[int, list[float]] = {0: [], 1: []}
    async with open_host({}, durable=True) as (host, folder):
        for number in range(OPENINGS + 1):
            for warm, taken in times.items():
                servers = {"echo": {**echo, "warm": warm}}
                began = time.perf_counter()
                async with host.session(cwd=folder, servers=servers, only_these=True, keep=False) as session:
                    seconds = time.perf_counter() - began
                    assert session.available == ("echo",)
                if number:  # the first one finds no server that waits
                    taken.append(seconds * 1000)
            await asyncio.sleep(WARM_UP_SECONDS)
    return statistics.median(times[0]), statistics.median(times[1])


def _take_turns() -> tuple[list[Turn], list[Turn]]:
    context = get_context("spawn")
    workers: list[tuple[SpawnProcess, Connection]] = []
    for client in (_our_client, _sdk_client):
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(client, there))
        process.start()
        workers.append((process, here))
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    try:
        for _ in range(TURNS):
            for (_, connection), taken in zip(workers, turns, strict=True):
                connection.send(RUNS // TURNS)
                taken.append(connection.recv())
    finally:
        for process, connection in workers:
            connection.send(0)
            process.join()
    return turns


def _work(client: Callable[[], AbstractAsyncContextManager[Run]], connection: Connection) -> None:
    asyncio.run(_serve_turns(client, connection))


async def _serve_turns(
    client: Callable[[], AbstractAsyncContextManager[Run]], connection: Connection
) -> None:
    async with client() as run:
        while count := await asyncio.to_thread(connection.recv):
            left = iter(range(count))

            async def work(left: Iterator[int] = left) -> None:
                for _ in left:
                    await run()

            began = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(CONCURRENT)))
            seconds = time.perf_counter() - began
            gc.collect()
            connection.send(
                Turn(
                    ms_per_run=seconds * 1000 / count,
                    resident_kb=_resident_kb(),
                    descriptors=len([*Path("/proc/self/fd").iterdir()]),
                )
            )


@asynccontextmanager
async def _our_client() -> AsyncIterator[Run]:
    async with open_host({}, durable=True) as (host, folder):

        async def run() -> None:
            servers = {"echo": entry(OURS)}
            async with host.session(cwd=folder, servers=servers, only_these=True, keep=False) as session:
                assert len(await session.tools()) == 1
                for _ in range(CALLS):
                    assert (await session.call("echo.echo", ARGUMENTS)).ok

        yield run


@asynccontextmanager
async def _sdk_client() -> AsyncIterator[Run]:
    async def run() -> None:
        async with SdkClient(StdioServerParameters(command=OURS[0], args=OURS[1:])) as client:
            assert len((await client.list_tools()).tools) == 1
            for _ in range(CALLS):
                assert not (await client.call_tool("echo", ARGUMENTS)).is_error

    yield run


def _resident_kb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
