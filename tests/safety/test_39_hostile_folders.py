"""Attack 39, with random hostile project folders: a session opens quickly in each, and no other session notices."""

import asyncio
import gc
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, folder, make_host
from tests.safety.hostile_folders import make_folder

__all__ = ["folder", "make_host"]

pytestmark = pytest.mark.anyio

# With HOLDFAST_FOLDERS the machine does nothing else, and the limits are literal. A folder mostly waits, so some parts of
# the folders are tried at the same time. Among other tests, the latency without an attack is subtracted.
ALONE = "HOLDFAST_FOLDERS" in os.environ
FOLDERS = int(os.environ.get("HOLDFAST_FOLDERS", "100"))
FIRST_SEED = int(os.environ.get("HOLDFAST_SEED", "0"))
PARTS = 12 if ALONE else 1
BATCH = 1 if ALONE else 10
ATTEMPTS = 8  # a stall caused by another process is not repeated; one caused by Holdfast is
MAX_OPEN_SECONDS, MAX_WAIT_MS, MAX_MB = 1.0, 50, 64
SECRET = "n0t-for-folders-7c1e"


@dataclass
class Neighbour:
    """Another session that reads a file all the time, and how long its slowest call took.

    The file tools run in the host's process: a server of its own would compete with the folders' programs for the CPU.
    """

    session: Session
    slowest_ms: float = 0
    is_calling: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        while not self.stop.is_set():
            began, self.is_calling = time.perf_counter(), True
            assert (await self.session.call("files.read", {"path": "note"})).ok
            self.is_calling = False
            self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.01)


@pytest.mark.promise("RES-15")
@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
async def test_session_opens_in_every_hostile_folder(
    part: int, make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET", SECRET)
    options = ConnectOptions(connect_seconds=0.3, end_seconds=0.1)
    problems: dict[int, str] = {}
    async with (
        make_host({}, options=options) as host,
        _neighbour(host, folder) as other,
    ):
        end = FIRST_SEED + FOLDERS * (part + 1) // PARTS
        for first in range(FIRST_SEED + FOLDERS * part // PARTS, end, BATCH):
            seeds = range(first, min(first + BATCH, end))
            if await _try_folders(host, other, tmp_path, seeds):
                problems |= await _try_each(host, other, tmp_path, seeds)
        # Another program may have kept the machine busy for longer than all attempts at one folder took.
        problems = await _try_each(host, other, tmp_path, problems)

    assert problems == {}


@asynccontextmanager
async def _neighbour(host: Host, folder: Path) -> AsyncIterator[Neighbour]:
    (folder / "note").write_text("a note")
    session = await host.open(OpenOptions(cwd=folder, only_server="files"))
    await session.wait_ready_and_store()
    neighbour = Neighbour(session)
    working = asyncio.create_task(neighbour.work())
    try:
        yield neighbour
    finally:
        neighbour.stop.set()
        await working
        await session.close()


async def _try_each(host: Host, other: Neighbour, parent: Path, seeds: Iterable[int]) -> dict[int, str]:
    """Try folders one by one. Return what is wrong with which of them."""
    return {seed: why for seed in seeds if (why := await _try_alone(host, other, parent, seed))}


async def _try_alone(host: Host, other: Neighbour, parent: Path, seed: int) -> str:
    problem = ""
    for _ in range(ATTEMPTS):
        problem = await _try_folders(host, other, parent, [seed])
        if not problem:
            break
    return problem


async def _try_folders(host: Host, other: Neighbour, parent: Path, seeds: Sequence[int]) -> str:
    """Open a session in each folder, wait for its servers and close it. Return what is wrong; empty if nothing is."""
    folders = [parent / f"project-{seed}" for seed in seeds]
    servers = await asyncio.to_thread(_make_folders, folders, seeds)
    gc.collect()
    calm_ms = 0.0 if ALONE else await _slowest_call(other, asyncio.sleep(0.1))
    before = _begin_peak()
    sessions = [
        _open_and_close(host, folder, brought, sandboxed=seed % 2 == 0)
        for folder, brought, seed in zip(folders, servers, seeds, strict=True)
    ]
    times: list[float] = []

    async def open_all() -> None:
        times.extend(await asyncio.gather(*sessions))

    try:
        slowest_ms = await _slowest_call(other, open_all())
    except HoldfastError as error:
        return f"a session was not opened: {error}"
    finally:
        await asyncio.to_thread(_remove_folders, folders)
    if max(times) > MAX_OPEN_SECONDS:
        return f"opening took {max(times):.2f} s"
    if slowest_ms - calm_ms > MAX_WAIT_MS and not ALONE:
        calm_ms = max(calm_ms, await _slowest_call(other, asyncio.sleep(0.2)))
    if slowest_ms - calm_ms > MAX_WAIT_MS:
        return f"another session waited {slowest_ms:.0f} ms (calm: {calm_ms:.0f} ms)"
    if (grown := _peak_mb() - before) > MAX_MB:
        return f"the host grew by {grown:.0f} MB"
    return ""


def _make_folders(folders: Sequence[Path], seeds: Sequence[int]) -> list[list[dict[str, Any]]]:
    for each in folders:
        each.mkdir(exist_ok=True)
    return [make_folder(each, seed) for each, seed in zip(folders, seeds, strict=True)]


def _remove_folders(folders: Sequence[Path]) -> None:
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)  # the sandbox may be removing its mount points


async def _slowest_call(other: Neighbour, work: Any) -> float:
    await asyncio.sleep(0.05)  # a call that is in flight now is not counted
    other.slowest_ms = 0
    await work
    await asyncio.sleep(0.005)
    return other.slowest_ms


async def _open_and_close(
    host: Host, folder: Path, servers: list[dict[str, Any]], *, sandboxed: bool
) -> float:
    """Return how long opening took."""
    options = OpenOptions(
        cwd=folder,
        trust=Trust.SANDBOXED if sandboxed else Trust.DIRECT,
        client_servers=tuple(servers) if sandboxed else (),
    )
    began = time.perf_counter()
    session = await host.open(options)
    seconds = time.perf_counter() - began
    try:
        await session.wait_ready_and_store()
        agents = await host.agent_definitions.list(str(folder))
        assert SECRET not in repr((session.refusals, session.warnings, agents))
    finally:
        await session.close()
    return seconds


def _begin_peak() -> float:
    """Let `_peak_mb` begin anew, and return what it is now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_mb()


def _peak_mb() -> float:
    """The most memory that this process has had since `_begin_peak`, even if it was freed again."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def test_control_a_stall_of_the_event_loop_is_noticed(make_host: HostFactory, folder: Path):
    async def stall() -> None:
        while not other.is_calling:
            await asyncio.sleep(0)
        time.sleep(0.2)
        await asyncio.sleep(0.05)

    async with make_host({}) as host, _neighbour(host, folder) as other:
        assert await _slowest_call(other, stall()) > MAX_WAIT_MS


def test_control_memory_that_was_freed_again_is_noticed():
    before = _begin_peak()

    assert bytearray(b"x") * ((MAX_MB + 1) * 1024**2)

    assert _peak_mb() - before > MAX_MB
