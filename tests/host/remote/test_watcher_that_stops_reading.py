"""A process that watches a session stops reading for a long time, beside one that does not."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.host.remote.owner import PIECE
from tests.host.remote.owner_process import Owner, open_owner

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-02")]

EVENTS = int(os.environ.get("HOLDFAST_WATCHER_EVENTS", "8000"))
WARM_UP = 2000  # more than the newest events that the owner keeps in memory
MAX_GROWTH = 20_000_000


@asynccontextmanager
async def watching(owner: Owner) -> AsyncIterator[asyncio.StreamReader]:
    """The output of `holdfast sessions watch`, after its first line. What is not read stays in the pipe."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "sessions", "watch", owner.lease.session_id, "--json"),
        stdout=asyncio.subprocess.PIPE,
        env=owner.environ,
    )
    assert process.stdout is not None
    try:
        assert json.loads(await process.stdout.readline())["seq"] == 1
        yield process.stdout
    finally:
        process.kill()
        await process.communicate()


async def read_turn(output: asyncio.StreamReader) -> int:
    """Read until a turn has ended, and check that no event is missing. Returns the number of the last one."""
    last = 0
    while True:
        event = json.loads(await output.readline())
        assert last in (0, event["seq"] - 1)
        last = event["seq"]
        if event["kind"] == "turn_ended":
            return last


async def test_watcher_that_stops_reading_delays_nothing_and_memory_stays_flat(tmp_path: Path):
    async with (
        open_owner(tmp_path, "--stream") as owner,
        watching(owner) as stopped,
        watching(owner) as reading,
    ):
        await owner.prompt(str(WARM_UP))
        await owner.wait_answered()
        await read_turn(reading)
        before = resident_bytes(owner.process.pid)
        await owner.prompt(str(EVENTS))
        reason = await owner.wait_answered()
        last = await read_turn(reading)
        grown = resident_bytes(owner.process.pid) - before

        print(f"{EVENTS} events beside a watcher that does not read: {grown / 1e6:.1f} MB growth")
        assert (reason, last > WARM_UP + EVENTS) == ("end_turn", True)
        if_kept = EVENTS * len(PIECE)
        assert grown < MAX_GROWTH < if_kept
        assert (await read_turn(stopped) < last, await read_turn(stopped)) == (True, last)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
