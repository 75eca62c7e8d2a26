"""Hundreds of sessions, each with its own server: the memory of an idle link and the host's CPU time per call.

CPU time per call is measured twice. First over one link while the others are idle: it must not depend on the number of
links. Then over all links in turn, where every call wakes another process and finds the caches cold. The machine's share
of that is measured for comparison, with bytes through bare pipes to the same servers.

Finally, all sessions make a durable call at once.
"""

import asyncio
import gc
import itertools
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.links import ARGUMENTS, OURS, entry, open_host
from benchmarks.result import Result
from benchmarks.wire import SERVERS, start
from holdfast.connect.call import call
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.call import ToolCall
from holdfast.model.permission import Mode
from holdfast.session.session import Session
from holdfast.wire.mcp.eras import VERSION_KEY

SESSIONS, CALLS, CONCURRENT, ROUNDS = 200, 1000, 20, 5
PROCESSES = 3
MAX_KB = 100.0
FEW, MANY, AT_ONCE_CALLS = 50, 500, 3000
LIGHT = [sys.executable, "-I", "-S", str(SERVERS / "light.py")]
MB_PER_SESSION = 12  # the memory of such a server and of its session, about
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCosts:
    """Memory per idle link, and CPU milliseconds per call over one link or over all in turn."""

    kb_per_link: float
    over_one: float
    in_turn: float


def results() -> list[Result]:
    rounds = [
        (run_in_new_process(_measure_sessions, 1), run_in_new_process(_measure_sessions, SESSIONS))
        for _ in range(PROCESSES)
    ]
    bare = [
        (run_in_new_process(_measure_bare_pipes, 1), run_in_new_process(_measure_bare_pipes, SESSIONS))
        for _ in range(PROCESSES)
    ]
    alone, many = (take_minimum(costs) for costs in zip(*rounds, strict=True))
    bare_alone, bare_many = (min(figures) for figures in zip(*bare, strict=True))
    return [
        Result(
            name="link.idle_kb",
            ours=many.kb_per_link,
            peer=MAX_KB,
            peer_name="what an idle link may take",
            unit="KB",
            goal="<= 1",
        ),
        Result(
            name="link.cpu_per_call",
            ours=many.over_one,
            peer=alone.over_one,
            peer_name=f"1 session; ours: one of {SESSIONS}",
            unit="ms",
            goal="<= 1.2",
        ),
        Result(
            name="link.cpu_per_call.in_turn",
            ours=many.in_turn / alone.in_turn,
            peer=bare_many / bare_alone,
            peer_name=f"from 1 to {SESSIONS} in turn, bare pipes: {bare_alone:.3f} to {bare_many:.3f} ms; "
            f"ours: {alone.in_turn:.3f} to {many.in_turn:.3f} ms",
            unit="x",
            goal="<= 1.2",
        ),
        _compare_sessions_at_once(),
    ]


def _compare_sessions_at_once() -> Result:
    many = min(MANY, _available_mb() // MB_PER_SESSION)
    few_cost, many_cost = (
        run_in_new_process(_measure_calls_at_once, FEW),
        run_in_new_process(_measure_calls_at_once, many),
    )
    fewer = "" if many == MANY else f" (not {MANY}: the memory of this machine is too small)"
    return Result(
        name="session.flat500",
        ours=many_cost * 1000,
        peer=few_cost * 1000,
        peer_name=f"CPU per durable call of {FEW} sessions at once; ours: {many} sessions{fewer}",
        unit="us",
        goal="<= 1.3",
    )


async def _measure_calls_at_once(count: int) -> float:
    """CPU milliseconds of the host per call, in the median round: in each, every session makes a durable call."""
    async with open_host({"echo": entry(LIGHT)}, durable=True) as (host, folder):
        opened = await _open_many(host, folder, count)

        async def call_once(session: Session) -> None:
            assert (await session.call("echo.echo", ARGUMENTS)).ok

        costs: list[float] = []
        for _ in range(1 + AT_ONCE_CALLS // count):
            began = time.process_time()
            await asyncio.gather(*map(call_once, opened))
            costs.append((time.process_time() - began) / count)
        await asyncio.gather(*(session.close() for session in opened))
    return statistics.median(costs[1:]) * 1000  # the first round warms up


def _available_mb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kb,) = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kb) // 1024


def take_minimum(costs: Sequence[SessionCosts]) -> SessionCosts:
    """The minimum of each figure: a process keeps the advantage or disadvantage of its memory placement."""
    return SessionCosts(
        kb_per_link=min(cost.kb_per_link for cost in costs),
        over_one=min(cost.over_one for cost in costs),
        in_turn=min(cost.in_turn for cost in costs),
    )


def run_in_new_process(measure: Callable[[int], Awaitable[T]], count: int) -> T:
    """Measure in a new process: memory that an earlier benchmark freed would hide what this one needs."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run, measure, count).result()


def _run(measure: Callable[[int], Awaitable[T]], count: int) -> T:
    async def measured() -> T:
        return await measure(count)

    return asyncio.run(measured())


async def _measure_sessions(count: int) -> SessionCosts:
    async with open_host({"echo": entry(OURS)}) as (host, folder):
        await (await _open(host, folder)).close()  # warm-up: what is created only once
        gc.collect()
        before = _resident_kb()
        opened = await _open_many(host, folder, count)
        gc.collect()
        kb = (_resident_kb() - before) / count
        calls = [await _make_call(host, session) for session in opened]
        cost = SessionCosts(
            kb_per_link=kb, over_one=await _cpu_per_call(calls[:1]), in_turn=await _cpu_per_call(calls)
        )
        await asyncio.gather(*(session.close() for session in opened))
    return cost


async def _open_many(host: Host, folder: Path, count: int) -> list[Session]:
    opened: list[Session] = []
    while len(opened) < count:
        some = range(min(CONCURRENT, count - len(opened)))
        opened += await asyncio.gather(*(_open(host, folder) for _ in some))
    return opened


async def _open(host: Host, folder: Path) -> Session:
    session = await host.open(OpenOptions(cwd=folder, only_server="echo", mode=Mode.AUTO))
    await session.wait_ready()
    return session


async def _make_call(host: Host, session: Session) -> Callable[[], Awaitable[Any]]:
    (tool,) = await session.tools()
    asked = ToolCall(call_id="call_1", server="echo", tool="echo", arguments=msgspec.json.encode(ARGUMENTS))

    async def once() -> None:
        assert (await call(host.links, session.scope, tool, asked, timeout=60)).ok

    return once


async def _cpu_per_call(calls: Iterable[Callable[[], Awaitable[Any]]]) -> float:
    """Milliseconds in the best of all rounds: one call after the other, cycling through `calls`."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for once in itertools.islice(itertools.cycle(calls), CALLS):
            await once()
        best = min(best, (time.process_time() - began) / CALLS)
    return best * 1000


async def _measure_bare_pipes(count: int) -> float:
    """CPU time to write a call as bytes and read its answer as bytes, without any protocol code."""
    processes = [start("ours.py") for _ in range(count)]
    try:
        return await _cpu_per_call([await _make_exchange(process) for process in processes])
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _make_exchange(process: Any) -> Callable[[], Awaitable[Any]]:
    loop = asyncio.get_running_loop()
    meta = {
        VERSION_KEY: "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": ARGUMENTS, "_meta": meta}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    line = msgspec.json.encode(asked) + b"\n"
    _, answers = await loop.connect_read_pipe(_Answers, process.stdout)

    async def once() -> None:
        answers.next = loop.create_future()
        os.write(process.stdin.fileno(), line)
        assert b'"text"' in await answers.next

    await once()
    return once


class _Answers(asyncio.Protocol):
    next: asyncio.Future[bytes]

    def data_received(self, data: bytes) -> None:
        self.next.set_result(data)


def _resident_kb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
