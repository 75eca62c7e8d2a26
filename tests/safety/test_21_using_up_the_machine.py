"""Attack 21: a confined server makes processes, opens files, fills memory and writes without end."""

import asyncio
import sys
from pathlib import Path
from time import perf_counter

import pytest

from holdfast.model.launch import Launch, Quota
from holdfast.sandbox.child import Child
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import PATH, confined, line, released, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

QUOTA = Quota(memory_bytes=256 << 20, processes=50, file_bytes=8 << 20, descriptors=100)
# Every process of the bomb holds the lock, so that its release says that all are gone.
BOMB = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open('lock', 'w')
fcntl.flock(lock, fcntl.LOCK_SH)
told = False
while True:
    try: os.fork()
    except OSError:
        if not told: print('full', flush=True); told = True
        time.sleep(0.05)
"""
MEMORY = "held = []\ntry:\n    while len(held) < 100: held.append(b'x' * (8 << 20))\nexcept MemoryError: held = held[:1]; print('full', flush=True)\nelse: print('endless', flush=True)"
FILES = "import os\nheld = []\ntry:\n    while len(held) < 1000: held.append(os.dup(1))\nexcept OSError: os.closerange(10, 200); print('full', flush=True)\nelse: print('endless', flush=True)"
DISK = "f = open('large', 'wb')\ntry:\n    for _ in range(64): f.write(b'x' * (1 << 20)); f.flush()\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"
SCRATCH = "f = open('/tmp/%d' % 0, 'wb')\nn = 0\ntry:\n    while n < 200:\n        f = open('/tmp/%d' % n, 'wb'); f.write(b'x' * (1 << 20)); f.close(); n += 1\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"


@pytest.mark.promise("BOX-03")
async def test_a_fork_bomb_is_contained_its_neighbour_answers_and_nothing_of_it_is_left(
    keeper: Keeper,
    root: Path,
) -> None:
    bomb = confined(
        Launch(argv=(sys.executable, "-I", "-c", BOMB), env=PATH, cwd=str(root)), root, quota=QUOTA
    )
    async with started(keeper, Launch(argv=("cat",), env=PATH, cwd="/")) as neighbour:
        async with started(keeper, bomb) as child:
            said = await line(child)
            slowest = max([await answered(neighbour) for _ in range(50)])

        await released(root / "lock")

    assert (said, slowest < 1.0) == ("full", True)


async def answered(neighbour: Child) -> float:
    began = perf_counter()
    neighbour.stdin.write(b"x\n")
    assert await line(neighbour) == "x"
    return perf_counter() - began


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize("code", [MEMORY, FILES, DISK, SCRATCH], ids=["memory", "files", "disk", "scratch"])
async def test_each_quota_ends_it_for_the_one_who_uses_it_up(keeper: Keeper, root: Path, code: str) -> None:
    launch = Launch(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    said = await run(keeper, confined(launch, root, quota=QUOTA))

    assert said.out == "full\n", said.err


@pytest.mark.parametrize("code", [MEMORY, FILES, DISK], ids=["memory", "files", "disk"])
async def test_without_walls_none_of_them_does(keeper: Keeper, root: Path, code: str) -> None:
    said = await run(keeper, Launch(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root)))

    assert said.out == "endless\n"


async def test_without_walls_processes_are_made_past_the_quota(keeper: Keeper, root: Path) -> None:
    code = "import os, signal\nfor n in range(120):\n    if os.fork() == 0: signal.pause()\nprint(n + 1, flush=True)"
    launch = Launch(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    async with started(keeper, launch) as child:
        said = await line(child)

    assert said == "120"


@pytest.mark.promise("BOX-03")
async def test_when_memory_runs_out_the_kernel_takes_it_first(keeper: Keeper, root: Path) -> None:
    code = "print(open('/proc/self/oom_score_adj').read())"
    launch = Launch(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    inside, outside = await asyncio.gather(run(keeper, confined(launch, root)), run(keeper, launch))

    assert (int(inside.out), int(outside.out) < 1000) == (1000, True)
