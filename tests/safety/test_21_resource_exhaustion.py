"""Attack 21: a confined server starts processes, opens files, allocates memory and writes without end."""

import asyncio
import sys
from pathlib import Path
from time import perf_counter

import pytest

from holdfast.model.process import ProcessSpec, Quota
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import PATH, confined, read_line, run, started, wait_unlocked

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

QUOTA = Quota(memory_bytes=256 << 20, processes=50, file_bytes=8 << 20, descriptors=100)
# Every process of the bomb holds the lock, so it is free once all have ended.
BOMB = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open('lock', 'w')
fcntl.flock(lock, fcntl.LOCK_SH)
full = False
while True:
    try: os.fork()
    except OSError:
        if not full: print('full', flush=True); full = True
        time.sleep(0.05)
"""
MEMORY = "held = []\ntry:\n    while len(held) < 100: held.append(b'x' * (8 << 20))\nexcept MemoryError: held = held[:1]; print('full', flush=True)\nelse: print('endless', flush=True)"
FILES = "import os\nheld = []\ntry:\n    while len(held) < 1000: held.append(os.dup(1))\nexcept OSError: os.closerange(10, 200); print('full', flush=True)\nelse: print('endless', flush=True)"
DISK = "f = open('large', 'wb')\ntry:\n    for _ in range(64): f.write(b'x' * (1 << 20)); f.flush()\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"
SCRATCH = "f = open('/tmp/%d' % 0, 'wb')\nn = 0\ntry:\n    while n < 200:\n        f = open('/tmp/%d' % n, 'wb'); f.write(b'x' * (1 << 20)); f.close(); n += 1\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"


@pytest.mark.promise("BOX-03")
async def test_fork_bomb_is_contained_and_removed_while_another_server_answers(
    keeper: Keeper,
    root: Path,
) -> None:
    bomb = confined(
        ProcessSpec(argv=(sys.executable, "-I", "-c", BOMB), env=PATH, cwd=str(root)), root, quota=QUOTA
    )
    async with started(keeper, ProcessSpec(argv=("cat",), env=PATH, cwd="/")) as neighbour:
        async with started(keeper, bomb) as child:
            printed = await read_line(child)
            slowest = max([await time_call(neighbour) for _ in range(50)])

        await wait_unlocked(root / "lock")

    assert (printed, slowest < 1.0) == ("full", True)


async def time_call(neighbour: Child) -> float:
    began = perf_counter()
    neighbour.stdin.write(b"x\n")
    assert await read_line(neighbour) == "x"
    return perf_counter() - began


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize("code", [MEMORY, FILES, DISK, SCRATCH], ids=["memory", "files", "disk", "scratch"])
async def test_each_quota_stops_the_server_that_exceeds_it(keeper: Keeper, root: Path, code: str) -> None:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    completed = await run(keeper, confined(spec, root, quota=QUOTA))

    assert completed.out == "full\n", completed.err


@pytest.mark.parametrize("code", [MEMORY, FILES, DISK], ids=["memory", "files", "disk"])
async def test_unconfined_server_exceeds_each_quota(keeper: Keeper, root: Path, code: str) -> None:
    completed = await run(
        keeper, ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))
    )

    assert completed.out == "endless\n"


async def test_unconfined_server_starts_more_processes_than_the_quota(keeper: Keeper, root: Path) -> None:
    code = "import os, signal\nfor n in range(120):\n    if os.fork() == 0: signal.pause()\nprint(n + 1, flush=True)"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    async with started(keeper, spec) as child:
        printed = await read_line(child)

    assert printed == "120"


@pytest.mark.promise("BOX-03")
async def test_kernel_ends_confined_servers_first_when_memory_runs_out(keeper: Keeper, root: Path) -> None:
    code = "print(open('/proc/self/oom_score_adj').read())"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    inside, outside = await asyncio.gather(run(keeper, confined(spec, root)), run(keeper, spec))

    assert (int(inside.out), int(outside.out) < 1000) == (1000, True)
