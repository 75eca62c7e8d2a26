"""The cost of a start and of a call: a plain subprocess, under the keeper, and in a bubblewrap sandbox.

All three are measured alternately in one run. A start's extra time is compared with its budget: 1 is the whole budget.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter

from benchmarks.result import Result
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper

STARTS = 60
ROUNDS = 8
TURNS = 5
CALLS = 200  # per turn
KEEPER_BUDGET_MS = 10.0
BWRAP_BUDGET_MS = 50.0
# Echoes its input with as little work as possible, so that only the cost of the pipes is measured.
ECHO = "import os\nos.write(1, b'+\\n')\nwhile d := os.read(0, 65536): os.write(1, d)"

Start = Callable[[], Awaitable[float]]


def results() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        return asyncio.run(measure(root))


async def measure(root: str) -> list[Result]:
    direct = ProcessSpec(argv=(sys.executable, "-I", "-S", "-c", ECHO), env={"PATH": os.defpath}, cwd=root)
    confined = replace(direct, confinement=Confinement(roots=(root,)))
    async with Keeper(BwrapSandbox()) as keeper:
        starts = {"plain": lambda: time_plain_start(direct), "keeper": lambda: time_start(keeper, direct), "bwrap": lambda: time_start(keeper, confined)}  # fmt: skip
        times = await median_start_times(starts)
        calls = await median_call_times(keeper, direct, confined)
    keeper_extra = times["keeper"] - times["plain"]
    bwrap_extra = times["bwrap"] - times["plain"]
    return [
        compare_budget("sandbox.keeper.start_ms", keeper_extra, KEEPER_BUDGET_MS, f"the budget over a plain start ({times['plain']:.1f} ms)"),
        compare_budget("sandbox.bwrap.start_ms", bwrap_extra, BWRAP_BUDGET_MS, f"the budget over a plain start ({times['plain']:.1f} ms)"),
        compare_calls("sandbox.keeper.call_us", calls["keeper"], calls["plain"]),
        compare_calls("sandbox.bwrap.call_us", calls["bwrap"], calls["plain"]),
    ]  # fmt: skip


def compare_budget(name: str, extra: float, budget: float, budget_name: str) -> Result:
    return Result(name=name, ours=extra, peer=budget, peer_name=budget_name, unit="ms more", goal="<= 1")


def compare_calls(name: str, ours: float, plain: float) -> Result:
    return Result(name=name, ours=ours, peer=plain, peer_name="a plain subprocess", unit="us", goal="<= 1.05")


async def median_start_times(starts: Mapping[str, Start]) -> dict[str, float]:
    """The median time from the start of a server to its first output, in milliseconds."""
    for start in starts.values():
        await start()
    times: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(STARTS):
        for name, start in starts.items():
            times[name].append(await start())
    return {name: statistics.median(found) * 1000 for name, found in times.items()}


async def time_plain_start(spec: ProcessSpec) -> float:
    start = perf_counter()
    process = plain_process(spec)
    assert process.stdout is not None
    process.stdout.readline()
    took = perf_counter() - start
    process.communicate()
    return took


def plain_process(spec: ProcessSpec) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        spec.argv, env=spec.env, cwd=spec.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
    )  # fmt: skip


async def time_start(keeper: Keeper, spec: ProcessSpec) -> float:
    start = perf_counter()
    child = await keeper.spawn(spec)
    child.stdout.readline()
    took = perf_counter() - start
    await end(child)
    return took


async def end(child: Child) -> None:
    child.stdin.close()
    await child.end(2.0)
    child.close()


async def median_call_times(keeper: Keeper, direct: ProcessSpec, confined: ProcessSpec) -> dict[str, float]:
    """The median time of one echoed line, in the best turn of each kind, in microseconds.

    Every round starts new processes: where the scheduler places a process affects all its calls.
    """
    rounds = [await run_round(keeper, direct, confined) for _ in range(ROUNDS)]
    return {name: min(found[name] for found in rounds) for name in rounds[0]}


async def run_round(keeper: Keeper, direct: ProcessSpec, confined: ProcessSpec) -> dict[str, float]:
    process = plain_process(direct)
    assert process.stdin is not None
    assert process.stdout is not None
    children = {"keeper": await keeper.spawn(direct), "bwrap": await keeper.spawn(confined)}
    ends = {name: (child.stdin.fileno(), child.stdout.fileno()) for name, child in children.items()}
    ends["plain"] = process.stdin.fileno(), process.stdout.fileno()
    for _, out in ends.values():
        os.read(out, 2)
    times: dict[str, list[float]] = {name: [] for name in ends}
    for turn in range(TURNS + 1):
        for name, (into, out) in ends.items():
            found = [time_call(into, out) for _ in range(CALLS)]
            if turn:
                times[name].append(statistics.median(found))
    for child in children.values():
        await end(child)
    process.communicate()
    return {name: min(found) * 1e6 for name, found in times.items()}


def time_call(into: int, out: int) -> float:
    start = perf_counter()
    os.write(into, b"x" * 200)
    os.read(out, 65536)
    return perf_counter() - start


if __name__ == "__main__":
    print(*results(), sep="\n")
