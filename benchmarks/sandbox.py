"""Starting a server: plainly, under the keeper, and behind walls; and what a call costs then.

All three take turns in one run. A difference is compared with its budget, so a ratio up to 1 is within it.
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
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.child import Child
from holdfast.sandbox.keeper import Keeper

STARTS = 60
ROUNDS = 8
TURNS = 5
CALLS = 200  # per turn
KEEPER_BUDGET_MS = 10.0
BWRAP_BUDGET_MS = 50.0
# Answers each line with itself, by single bytes' worth of work: what is left is the pipes' own cost.
ECHO = "import os\nos.write(1, b'+\\n')\nwhile d := os.read(0, 65536): os.write(1, d)"

Start = Callable[[], Awaitable[float]]


def results() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        return asyncio.run(measured(root))


async def measured(root: str) -> list[Result]:
    direct = Launch(argv=(sys.executable, "-I", "-S", "-c", ECHO), env={"PATH": os.defpath}, cwd=root)
    confined = replace(direct, confinement=Confinement(roots=(root,)))
    async with Keeper(Bwrap()) as keeper:
        starts = {"plain": lambda: plainly(direct), "keeper": lambda: kept(keeper, direct), "bwrap": lambda: kept(keeper, confined)}  # fmt: skip
        times = await taking_turns(starts)
        calls = await calls_taking_turns(keeper, direct, confined)
    keeper_more = times["keeper"] - times["plain"]
    bwrap_more = times["bwrap"] - times["plain"]
    return [
        budget("sandbox.keeper.start_ms", keeper_more, KEEPER_BUDGET_MS, f"the budget over a plain start ({times['plain']:.1f} ms)"),
        budget("sandbox.bwrap.start_ms", bwrap_more, BWRAP_BUDGET_MS, f"the budget over a plain start ({times['plain']:.1f} ms)"),
        per_call("sandbox.keeper.call_us", calls["keeper"], calls["plain"]),
        per_call("sandbox.bwrap.call_us", calls["bwrap"], calls["plain"]),
    ]  # fmt: skip


def budget(name: str, more: float, most: float, what: str) -> Result:
    return Result(name=name, ours=more, peer=most, peer_name=what, unit="ms more", goal="<= 1")


def per_call(name: str, ours: float, plain: float) -> Result:
    return Result(name=name, ours=ours, peer=plain, peer_name="a plain subprocess", unit="us", goal="<= 1.05")


async def taking_turns(starts: Mapping[str, Start]) -> dict[str, float]:
    """The median time from asking for a server to its first word, in milliseconds."""
    for start in starts.values():
        await start()
    times: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(STARTS):
        for name, start in starts.items():
            times[name].append(await start())
    return {name: statistics.median(found) * 1000 for name, found in times.items()}


async def plainly(launch: Launch) -> float:
    began = perf_counter()
    process = plain_process(launch)
    assert process.stdout is not None
    process.stdout.readline()
    took = perf_counter() - began
    process.communicate()
    return took


def plain_process(launch: Launch) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        launch.argv, env=launch.env, cwd=launch.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
    )  # fmt: skip


async def kept(keeper: Keeper, launch: Launch) -> float:
    began = perf_counter()
    child = await keeper.spawn(launch)
    child.stdout.readline()
    took = perf_counter() - began
    await over(child)
    return took


async def over(child: Child) -> None:
    child.stdin.close()
    await child.end(2.0)
    child.close()


async def calls_taking_turns(keeper: Keeper, direct: Launch, confined: Launch) -> dict[str, float]:
    """The median time of one line to a server and back in the calmest turn of each, in microseconds.

    All start anew in each round: where the machine happens to put a process moves its figure as long as it lives.
    """
    rounds = [await one_round(keeper, direct, confined) for _ in range(ROUNDS)]
    return {name: min(found[name] for found in rounds) for name in rounds[0]}


async def one_round(keeper: Keeper, direct: Launch, confined: Launch) -> dict[str, float]:
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
            found = [called(into, out) for _ in range(CALLS)]
            if turn:
                times[name].append(statistics.median(found))
    for child in children.values():
        await over(child)
    process.communicate()
    return {name: min(found) * 1e6 for name, found in times.items()}


def called(into: int, out: int) -> float:
    began = perf_counter()
    os.write(into, b"x" * 200)
    os.read(out, 65536)
    return perf_counter() - began


if __name__ == "__main__":
    print(*results(), sep="\n")
