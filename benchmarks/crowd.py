"""Two hundred sessions, each with a server of its own: what an idle link takes, and what a call costs their host.

CPU per call is measured twice. First over one link while the others are idle: what the host has to do must not
depend on how many there are. Then over all links in turn, where every call wakes another process and finds the
caches cold; what the machine takes for that is measured beside it, by bytes through bare pipes to the same servers.
"""

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.links import ARGUMENTS, OURS, entry, hosted
from benchmarks.result import Result
from benchmarks.wire import start
from holdfast.connect.call import call
from holdfast.host import Host, Opening
from holdfast.model.call import ToolCall
from holdfast.session.session import Session
from holdfast.wire.mcp.eras import VERSION_KEY

MANY, CALLS, AT_ONCE, ROUNDS = 200, 1000, 20, 5
PROCESSES = 3
MOST_KB = 100.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What sessions cost their host: memory while idle, and CPU per call over one of them or all in turn."""

    kb_per_link: float
    over_one: float
    in_turn: float


def results() -> list[Result]:
    rounds = [(fresh(_sessions, 1), fresh(_sessions, MANY)) for _ in range(PROCESSES)]
    bare = [(fresh(_bare, 1), fresh(_bare, MANY)) for _ in range(PROCESSES)]
    alone, many = (calmest(crowds) for crowds in zip(*rounds, strict=True))
    bare_alone, bare_many = (min(figures) for figures in zip(*bare, strict=True))
    return [
        Result(
            name="link.idle_kb",
            ours=many.kb_per_link,
            peer=MOST_KB,
            peer_name="what an idle link may take",
            unit="KB",
            goal="<= 1",
        ),
        Result(
            name="link.cpu_per_call",
            ours=many.over_one,
            peer=alone.over_one,
            peer_name=f"1 session; ours: one of {MANY}",
            unit="ms",
            goal="<= 1.2",
        ),
        Result(
            name="link.cpu_per_call.in_turn",
            ours=many.in_turn / alone.in_turn,
            peer=bare_many / bare_alone,
            peer_name=f"from 1 to {MANY} in turn, bare pipes: {bare_alone:.3f} to {bare_many:.3f} ms; "
            f"ours: {alone.in_turn:.3f} to {many.in_turn:.3f} ms",
            unit="x",
            goal="<= 1.2",
        ),
    ]


def calmest(crowds: Sequence[Crowd]) -> Crowd:
    """The least of each figure: where the machine happens to put a process moves its figures as long as it lives."""
    return Crowd(
        kb_per_link=min(crowd.kb_per_link for crowd in crowds),
        over_one=min(crowd.over_one for crowd in crowds),
        in_turn=min(crowd.in_turn for crowd in crowds),
    )


def fresh(measure: Callable[[int], Awaitable[T]], count: int) -> T:
    """Measured in a process of its own: memory that an earlier benchmark freed would hide what this one takes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run, measure, count).result()


def _run(measure: Callable[[int], Awaitable[T]], count: int) -> T:
    async def measured() -> T:
        return await measure(count)

    return asyncio.run(measured())


async def _sessions(count: int) -> Crowd:
    async with hosted({"echo": entry(OURS)}) as (host, folder):
        await host.close_session(await _open(host, folder))  # what is made once
        gc.collect()
        before = _resident_kb()
        opened: list[Session] = []
        while len(opened) < count:
            some = range(min(AT_ONCE, count - len(opened)))
            opened += await asyncio.gather(*(_open(host, folder) for _ in some))
        gc.collect()
        kb = (_resident_kb() - before) / count
        calls = [await _calling(host, session) for session in opened]
        crowd = Crowd(
            kb_per_link=kb, over_one=await _cpu_per_call(calls[:1]), in_turn=await _cpu_per_call(calls)
        )
        await asyncio.gather(*(host.close_session(session) for session in opened))
    return crowd


async def _open(host: Host, folder: Path) -> Session:
    session = await host.open(Opening(cwd=folder, only="echo"))
    await session.ready()
    return session


async def _calling(host: Host, session: Session) -> Callable[[], Awaitable[Any]]:
    (offer,) = await session.tools()
    asked = ToolCall(call_id="call_1", server="echo", tool="echo", arguments=msgspec.json.encode(ARGUMENTS))

    async def once() -> None:
        assert (await call(host.links, session.scope, offer, asked, timeout=60)).ok

    return once


async def _cpu_per_call(calls: Iterable[Callable[[], Awaitable[Any]]]) -> float:
    """Milliseconds, in the calmest of all rounds: one call after the other, each by the next of them."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for once in itertools.islice(itertools.cycle(calls), CALLS):
            await once()
        best = min(best, (time.process_time() - began) / CALLS)
    return best * 1000


async def _bare(count: int) -> float:
    """A call as a line of bytes, and its answer as bytes, with nothing around."""
    processes = [start("ours.py") for _ in range(count)]
    try:
        return await _cpu_per_call([await _exchanging(process) for process in processes])
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _exchanging(process: Any) -> Callable[[], Awaitable[Any]]:
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
