"""Killed processes and power cuts lose no acknowledged event. `make soak-kill` and `make powerloss` run longer."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.event import Prompted, Replied, StopReason, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.end_interrupted import end_interrupted
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Synchronous
from tests.store.powerloss import powerloss
from tests.store.sessions import new_session
from tests.store.soak import KillReport, soak


@pytest.mark.promise("STO-02", "STO-04", "AUD-02")
def test_killed_writers_lose_no_acknowledged_event_and_leave_no_gaps_or_duplicates(tmp_path: Path) -> None:
    report = soak(tmp_path, cycles=6)

    assert report == KillReport(
        cycles=6,
        acknowledged=report.acknowledged,
        lost=0,
        unacknowledged=report.unacknowledged,
        interrupted=report.interrupted,
        problems=[],
    )
    assert report.acknowledged > 0


def test_control_acknowledging_before_the_commit_loses_events(tmp_path: Path) -> None:
    assert soak(tmp_path, cycles=20, acknowledge_early=True).lost > 0


@pytest.mark.slow
@pytest.mark.promise("STO-01", "STO-02")
def test_power_cut_loses_no_acknowledged_event(tmp_path: Path) -> None:
    report = powerloss(tmp_path, images=100)

    assert (report.images, report.events_lost, report.problems) == (100, 0, [])


@pytest.mark.slow
def test_control_synchronous_normal_loses_events(tmp_path: Path) -> None:
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
        appender = store.appender(await store.acquire(session_id))
        await appender.append(Prompted(turn_id="turn_1", message_id="msg_1", blocks=({"type": "text", "text": "go"},)))
        await (await appender.append(Replied(message_id="msg_2", text="I was say"))).wait_durable()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.promise("STO-03")
def test_turn_of_a_killed_process_is_interrupted_and_the_session_accepts_the_next_prompt(
    tmp_path: Path,
) -> None:
    path = tmp_path / "holdfast.db"

    async def before() -> SessionId:
        async with SqliteStore(path) as store:
            return await new_session(store)

    session_id = asyncio.run(before())
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_TURN, path, session_id], env=os.environ, check=False
    )
    assert killed.returncode == -signal.SIGKILL

    async def after() -> list[object]:
        async with SqliteStore(path) as store:
            hold = await store.acquire(session_id)
            await store.write(lambda tx: end_interrupted(tx, hold))
            await store.append(hold, Prompted(turn_id="turn_2", message_id="msg_3", blocks=()))
            return [stored.event async for stored in store.events(session_id)]

    assert asyncio.run(after()) == [
        Prompted(turn_id="turn_1", message_id="msg_1", blocks=({"type": "text", "text": "go"},)),
        Replied(message_id="msg_2", text="I was say"),
        TurnEnded(turn_id="turn_1", reason=StopReason.INTERRUPTED),
        Prompted(turn_id="turn_2", message_id="msg_3", blocks=()),
    ]
