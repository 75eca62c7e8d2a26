"""Programs to start, and what becomes of them."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox.child import Child
from holdfast.sandbox.keeper import Keeper

PATH = {"PATH": "/usr/bin:/bin"}
PATIENCE = 20.0
# Leaves a daemon that holds a lock on the file of its argument, ignores SIGTERM, and has left session and group.
DAEMON = """
import fcntl, os, signal, sys
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lock = open(sys.argv[1], 'w')
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid())); lock.flush()
        os.write(told, b'+')
        os.close(0); os.close(1); os.close(2); os.close(told)
        while True: signal.pause()
    os._exit(0)
os.wait()
os.read(ready, 1)
print('ready', flush=True)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
SOURCE = Path(__file__).resolve().parents[2] / "src"
STAY = "\nimport time\nwhile True: time.sleep(1000)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a program said, and how it ended."""

    code: int
    out: str
    err: str


def python(code: str, *words: str, cwd: str = "/", env: dict[str, str] | None = None) -> Launch:
    """A Python program, direct."""
    return Launch(argv=(sys.executable, "-I", "-c", code, *words), env=env or PATH, cwd=cwd)


def confined(launch: Launch, root: Path, **walls: object) -> Launch:
    """The same behind walls, at home in its root."""
    confinement = replace(Confinement(roots=(str(root),)), **walls)  # pyright: ignore[reportArgumentType]
    return replace(launch, cwd=str(root), confinement=confinement)


async def run(keeper: Keeper, launch: Launch, said: bytes = b"") -> Done:
    """Start a program, say something to it, and wait until nothing of it is left."""
    async with started(keeper, launch) as child:
        child.stdin.write(said)
        child.stdin.close()
        out, err = await asyncio.gather(
            asyncio.to_thread(child.stdout.read), asyncio.to_thread(child.stderr.read)
        )
        code = await child.wait()
    return Done(code=code, out=out.decode(), err=err.decode())


@contextlib.asynccontextmanager
async def started(keeper: Keeper, launch: Launch, *, grace: float = 0.1) -> AsyncIterator[Child]:
    """A running program, ended afterwards."""
    child = await keeper.spawn(launch)
    try:
        yield child
    finally:
        async with asyncio.timeout(PATIENCE):
            await child.end(grace)
        child.close()


async def line(child: Child) -> str:
    """The next line of the program's."""
    return (await asyncio.to_thread(_line, child)).strip()


def _line(child: Child) -> str:
    said = b""
    while not said.endswith(b"\n"):
        letter = child.stdout.read(1)
        if not letter:
            break
        said += letter
    return said.decode()


async def released(lock: Path) -> None:
    """Wait until nobody holds the lock: its holder is gone, whatever its pid was."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(_take, lock)


def _take(lock: Path) -> None:
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def held(lock: Path) -> bool:
    """Whether somebody holds the lock."""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
    try:
        async with asyncio.timeout(PATIENCE):
            await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what sends no event."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def descriptors() -> set[str]:
    """What this process has open, by what it is."""
    found: set[str] = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{fd.name} {fd.readlink()}")
    return found


def children(pid: int) -> list[int]:
    """The processes that have this one as their parent."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if (
                folder.name.isdecimal()
                and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid
            ):
                found.append(int(folder.name))
    return found


def readable_source(folder: Path) -> str:
    """Our source where any user can read it: a checkout may lie in a folder that is its owner's alone."""
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return str(folder / "src")
