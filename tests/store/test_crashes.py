"""Killed processes and cut power lose nothing that was acknowledged. `make soak-kill` and `make powerloss` do more of it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.event import Prompted, Replied, StopReason, TurnEnded
from holdfast.store.database import Synchronous
from holdfast.store.interrupted import end_interrupted
from holdfast.store.sqlite import SqliteStore
from tests.store.powerloss import powerloss
from tests.store.sessions import new_session
from tests.store.soak import Toll, soak


@pytest.mark.promise("STO-02", "STO-04", "AUD-02")
def test_writers_killed_at_random_moments_lose_nothing_and_leave_no_gap_and_no_double(tmp_path: Path) -> None:
    toll = soak(tmp_path, cycles=20)

    assert toll == Toll(
        cycles=20,
        acknowledged=toll.acknowledged,
        lost=0,
        unacknowledged=toll.unacknowledged,
        interrupted=toll.interrupted,
        problems=[],
    )
    assert toll.acknowledged > 0


def test_control_a_writer_that_acknowledges_before_it_commits_loses(tmp_path: Path) -> None:
    assert soak(tmp_path, cycles=20, early=True).lost > 0


@pytest.mark.promise("STO-01", "STO-02")
def test_power_cut_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    toll = powerloss(tmp_path, images=100)

    assert (toll.images, toll.events_lost, toll.problems) == (100, 0, [])


def test_control_a_store_that_does_not_wait_for_the_disk_loses(tmp_path: Path) -> None:
    assert powerloss(tmp_path, images=100, synchronous=Synchronous.NORMAL).events_lost > 0


KILLED_IN_A_TURN = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.model.event import Prompted, Replied
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore

async def main():
    session_id = SessionId(sys.argv[2])
    async with SqliteStore(Path(sys.argv[1])) as store:
        await store.hold(session_id)
        stream = store.appender(session_id)
        await stream.append(Prompted(turn_id="turn_1", message_id="msg_1", blocks=({"type": "text", "text": "go"},)))
        await (await stream.append(Replied(message_id="msg_2", text="I was say"))).durable()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.promise("STO-03")
def test_a_turn_cut_off_by_a_kill_is_seen_as_interrupted_and_the_session_takes_the_next_prompt(
    tmp_path: Path,
) -> None:
    path = tmp_path / "holdfast.db"

    async def before() -> str:
        async with SqliteStore(path) as store:
            return await new_session(store)

    session_id = asyncio.run(before())
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_TURN, path, session_id], env=os.environ, check=False
    )
    assert killed.returncode == -signal.SIGKILL

    async def after() -> list[object]:
        async with SqliteStore(path) as store:
            (cut,) = await store.read(lambda reads: reads.open_turns())
            await store.hold(cut.session_id)
            await store.write(lambda tx, cut=cut: end_interrupted(tx, cut.session_id))
            await store.append(cut.session_id, Prompted(turn_id="turn_2", message_id="msg_3", blocks=()))
            return [stored.event async for stored in store.events(cut.session_id)]

    assert asyncio.run(after()) == [
        Prompted(turn_id="turn_1", message_id="msg_1", blocks=({"type": "text", "text": "go"},)),
        Replied(message_id="msg_2", text="I was say"),
        TurnEnded(turn_id="turn_1", reason=StopReason.INTERRUPTED),
        Prompted(turn_id="turn_2", message_id="msg_3", blocks=()),
    ]
