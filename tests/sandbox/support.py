"""Programs for the tests to start, and helpers that wait for them."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper

PATH = {"PATH": "/usr/bin:/bin"}
TIMEOUT = 20.0
# Starts a daemon in a new session and process group. It locks the file named by the argument and ignores SIGTERM.
DAEMON = """
import fcntl, os, signal, sys
ready, started = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lock = open(sys.argv[1], 'w')
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid())); lock.flush()
        os.write(started, b'+')
        os.close(0); os.close(1); os.close(2); os.close(started)
        while True: signal.pause()
    os._exit(0)
os.wait()
os.read(ready, 1)
print('ready', flush=True)
"""
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
SOURCE = Path(__file__).resolve().parents[2] / "src"
SLEEP_FOREVER = "\nimport time\nwhile True: time.sleep(1000)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A program's output and exit code."""

    code: int
    out: str
    err: str


def python(code: str, *arguments: str, cwd: str = "/", env: dict[str, str] | None = None) -> ProcessSpec:
    """A Python program, not confined."""
    return ProcessSpec(argv=(sys.executable, "-I", "-c", code, *arguments), env=env or PATH, cwd=cwd)


def confined(spec: ProcessSpec, root: Path, **changes: object) -> ProcessSpec:
    """The same program, confined, with `root` as its root and working folder."""
    confinement = replace(Confinement(roots=(str(root),)), **changes)  # pyright: ignore[reportArgumentType]
    return replace(spec, cwd=str(root), confinement=confinement)


async def run(keeper: Keeper, spec: ProcessSpec, stdin: bytes = b"") -> Completed:
    """Start a program, write to its standard input, and wait until all its processes have ended."""
    async with started(keeper, spec) as child:
        child.stdin.write(stdin)
        child.stdin.close()
        out, err = await asyncio.gather(
            asyncio.to_thread(child.stdout.read), asyncio.to_thread(child.stderr.read)
        )
        code = await child.wait()
    return Completed(code=code, out=out.decode(), err=err.decode())


@contextlib.asynccontextmanager
async def started(keeper: Keeper, spec: ProcessSpec, *, grace: float = 0.1) -> AsyncIterator[Child]:
    """A running program, ended afterwards."""
    child = await keeper.spawn(spec)
    try:
        yield child
    finally:
        async with asyncio.timeout(TIMEOUT):
            await child.end(grace)
        child.close()


async def read_line(child: Child) -> str:
    """The next line that the program prints."""
    return (await asyncio.to_thread(_read_line, child)).strip()


def _read_line(child: Child) -> str:
    line = b""
    while not line.endswith(b"\n"):
        byte = child.stdout.read(1)
        if not byte:
            break
        line += byte
    return line.decode()


async def wait_unlocked(lock: Path) -> None:
    """Wait until the lock is free: the process that held it has ended."""
    async with asyncio.timeout(TIMEOUT):
        await asyncio.to_thread(_lock, lock)


def _lock(lock: Path) -> None:
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock."""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def wait_exit(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
    try:
        async with asyncio.timeout(TIMEOUT):
            await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Poll for a condition that no event announces."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.01)


def open_descriptors() -> set[str]:
    """The open descriptors of this process, as number and target."""
    found: set[str] = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{fd.name} {fd.readlink()}")
    return found


def children(pid: int) -> list[int]:
    """The direct child processes of this process."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if (
                folder.name.isdecimal()
                and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid
            ):
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def bind_mount(source: Path, target: Path) -> Iterator[None]:
    """Show a folder at another path, too. Skips the test if that is not allowed here."""
    if subprocess.run(["mount", "--bind", source, target], check=False, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def copy_source(folder: Path) -> str:
    """Copy `src` to where every user can read it; the checkout may be in a private folder."""
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return str(folder / "src")
