"""One hostile server beside ten good ones: what it costs the other sessions and the host."""

import asyncio
import gc
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry

pytestmark = pytest.mark.anyio

KINDS = (
    "a line of 1 GB",
    "an endless line",
    "invalid UTF-8",
    "nesting",
    "requests",
    "notifications",
    "changes",
    "stderr",
    "a long list",
    "a list that is too long",
    "an endless list",
    "a pattern",
    "a large answer",
)
# In the soak this test has the machine to itself, and the promise is measured literally. Among other tests, the latency
# without an attack is subtracted; on a machine so busy that the latency without an attack is above the limit, that latency is the limit.
ALONE = "HOLDFAST_NEIGHBOURS" in os.environ
SECONDS = float(os.environ.get("HOLDFAST_NEIGHBOURS", "0.2"))
GOOD = 10 if ALONE else 5
ATTEMPTS = 6
PAUSE = 0.02
MAX_MS, MAX_MB = 50, 64


@dataclass(frozen=True)
class Cost:
    """The latency of the other sessions' calls and the growth of the host's memory during an attack."""

    p99_ms: float
    grown_mb: float

    def is_bearable(self, calm: "Cost") -> bool:
        """Whether the cost is within the promised limits."""
        added_ms, max_ms = (
            (self.p99_ms, MAX_MS) if ALONE else (self.p99_ms - calm.p99_ms, max(MAX_MS, calm.p99_ms))
        )
        return added_ms < max_ms and self.grown_mb <= MAX_MB


@pytest.mark.slow
@pytest.mark.promise("LNK-13")
@pytest.mark.timeout(900)
async def test_hostile_server_does_not_slow_other_sessions(make_host: HostFactory, tmp_path: Path):
    servers = {"good": counter_entry(), **{kind: hostile_entry(kind) for kind in ("no answer", *KINDS)}}
    options = ConnectOptions(end_seconds=0.1)
    unbearable: dict[str, Cost] = {}
    async with (
        make_host(servers, options=options, durable=True) as host,
        _open_neighbours(host, tmp_path) as neighbours,
    ):
        calm = await _measure_attack(host, tmp_path, neighbours, "no answer")
        print("no answer:", calm)
        for kind in KINDS:
            cost = await _measure_attack(host, tmp_path, neighbours, kind)
            for _ in range(ATTEMPTS):
                if cost.is_bearable(calm):
                    break
                calm = await _measure_attack(host, tmp_path, neighbours, "no answer")
                cost = await _measure_attack(host, tmp_path, neighbours, kind)
            else:
                unbearable[kind] = cost
            print(f"{kind}:", cost)

    assert unbearable == {}


@asynccontextmanager
async def _open_neighbours(host: Host, folder: Path) -> AsyncIterator[list[Session]]:
    sessions = [await host.open(OpenOptions(cwd=folder, only_server="good")) for _ in range(GOOD)]
    await asyncio.gather(*(session.call("good.count") for session in sessions))
    try:
        yield sessions
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


async def _measure_attack(host: Host, folder: Path, neighbours: list[Session], kind: str) -> Cost:
    gc.collect()
    before = _resident_mb()
    most = before
    stop = asyncio.Event()

    async def watch() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, _resident_mb())
            await asyncio.sleep(0.01)

    async def work(session: Session) -> list[float]:
        times: list[float] = []
        while not stop.is_set():
            began = time.perf_counter()
            assert (await session.call("good.count")).ok
            times.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
        return times

    working = [asyncio.create_task(work(session)) for session in neighbours]
    watching = asyncio.create_task(watch())
    victim = await host.open(OpenOptions(cwd=folder, only_server=kind))
    attack = asyncio.create_task(victim.call(f"{kind}.attack", {"text": "a" * 40}))
    await asyncio.wait([attack], timeout=SECONDS)
    await asyncio.sleep(SECONDS / 4)
    attack.cancel()
    await asyncio.wait([attack])
    await victim.close()
    stop.set()
    times = [seconds for taken in await asyncio.gather(*working) for seconds in taken]
    await watching
    p99 = statistics.quantiles(times, n=100)[98]
    return Cost(p99_ms=round(p99 * 1000, 1), grown_mb=round(most - before, 1))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
