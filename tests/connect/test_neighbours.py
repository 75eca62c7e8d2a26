"""One hostile server beside ten good ones: what it costs the others, and the host."""

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

from holdfast.connect.terms import Terms
from holdfast.host import Host, Opening
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter, hostile

pytestmark = pytest.mark.anyio

KINDS = (
    "a line of 1 GB",
    "an endless line",
    "no UTF-8",
    "nesting",
    "requests",
    "notifications",
    "changes",
    "words",
    "lists much",
    "lists too much",
    "lists without end",
    "a pattern",
    "a large answer",
)
GOOD = 10
# In the soak this test has the machine to itself, and the promise is measured as it is written; among other tests,
# what these do to the machine is taken off.
ALONE = "HOLDFAST_NEIGHBOURS" in os.environ
SECONDS = float(os.environ.get("HOLDFAST_NEIGHBOURS", "0.4"))
ATTEMPTS = 3  # more: another process may have its moment; a stall of our own is there every time
PAUSE = 0.02
MOST_MS, MOST_MB = 50, 64


@dataclass(frozen=True)
class Cost:
    """How the others fared: their slowest calls, and how much memory the host came to need."""

    p99_ms: float
    grown_mb: float

    def bearable(self, calm: "Cost") -> bool:
        """Whether it is within what is promised."""
        p99_ms = self.p99_ms if ALONE else self.p99_ms - calm.p99_ms
        return p99_ms < MOST_MS and self.grown_mb <= MOST_MB


@pytest.mark.promise("LNK-13")
@pytest.mark.timeout(900)
async def test_it_costs_its_own_session_and_nobody_else(make_host: HostFactory, tmp_path: Path):
    servers = {"good": counter(), **{kind: hostile(kind) for kind in ("nothing", *KINDS)}}
    terms = Terms(end_seconds=0.1)
    unbearable: dict[str, Cost] = {}
    async with (
        make_host(servers, terms=terms, durable=True) as host,
        _neighbours(host, tmp_path) as neighbours,
    ):
        calm = await _attacked(host, tmp_path, neighbours, "nothing")
        print("nothing:", calm)
        for kind in KINDS:
            cost = await _attacked(host, tmp_path, neighbours, kind)
            for _ in range(ATTEMPTS):
                if cost.bearable(calm):
                    break
                calm = await _attacked(host, tmp_path, neighbours, "nothing")
                cost = await _attacked(host, tmp_path, neighbours, kind)
            else:
                unbearable[kind] = cost
            print(f"{kind}:", cost)

    assert unbearable == {}


@asynccontextmanager
async def _neighbours(host: Host, folder: Path) -> AsyncIterator[list[Session]]:
    sessions = [await host.open(Opening(cwd=folder, only="good")) for _ in range(GOOD)]
    await asyncio.gather(*(session.call("good.count") for session in sessions))
    try:
        yield sessions
    finally:
        await asyncio.gather(*(host.close_session(session) for session in sessions))


async def _attacked(host: Host, folder: Path, neighbours: list[Session], kind: str) -> Cost:
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
    victim = await host.open(Opening(cwd=folder, only=kind))
    attack = asyncio.create_task(victim.call(f"{kind}.attack", {"text": "a" * 40}))
    await asyncio.wait([attack], timeout=SECONDS)
    await asyncio.sleep(SECONDS / 4)
    attack.cancel()
    await asyncio.wait([attack])
    await host.close_session(victim)
    stop.set()
    times = [seconds for taken in await asyncio.gather(*working) for seconds in taken]
    await watching
    p99 = statistics.quantiles(times, n=100)[98]
    return Cost(p99_ms=round(p99 * 1000, 1), grown_mb=round(most - before, 1))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
