"""Kill writers at random moments, again and again, and count what was lost: `python -m tests.store.soak --cycles 300`."""

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.model.event import StopReason, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check
from holdfast.testing.contract.given import create

WRITERS = 2
ROOT = Path(__file__).parents[2]


@dataclass
class Toll:
    """What the kills cost."""

    cycles: int = 0
    acknowledged: int = 0
    lost: int = 0
    unacknowledged: int = 0
    interrupted: int = 0
    problems: list[str] = field(default_factory=list[str])


def soak(folder: Path, *, cycles: int, early: bool = False, seed: int = 1) -> Toll:
    """Run and kill writers; every cycle goes on with what the one before left, ten times over."""
    dice, toll = random.Random(seed), Toll()
    while toll.cycles < cycles and not toll.problems and not (early and toll.lost):
        place = folder / f"from{toll.cycles}"
        _life(place / "holdfast.db", min(10, cycles - toll.cycles), dice, toll, early=early)
        shutil.rmtree(place)
    return toll


def _life(path: Path, cycles: int, dice: random.Random, toll: Toll, *, early: bool) -> None:
    sessions = asyncio.run(_sessions(path))
    acknowledged: dict[SessionId, int] = dict.fromkeys(sessions, 0)
    for _ in range(cycles):
        writers = {session_id: _start(path, session_id, early=early) for session_id in sessions}
        for session_id, said in _kill_some_time(writers, dice).items():
            toll.acknowledged += max(0, max(said, default=0) - acknowledged[session_id])
            acknowledged[session_id] = max([acknowledged[session_id], *said])
        toll.cycles += 1
        asyncio.run(_inspect(path, acknowledged, toll))
        if toll.problems or (early and toll.lost):
            break


async def _sessions(path: Path) -> list[SessionId]:
    async with SqliteStore(path) as store:
        return [(await create(store)).context.session_id for _ in range(WRITERS)]


def _start(path: Path, session_id: SessionId, *, early: bool) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.store.soak_writer", str(path), session_id]
    with (path.parent / "complaints").open("ab") as complaints:
        return subprocess.Popen(
            [*command, "--early"] if early else command, cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints
        )


def _kill_some_time(
    writers: dict[SessionId, "subprocess.Popen[bytes]"], dice: random.Random
) -> dict[SessionId, list[int]]:
    """Let all writers say something, kill each a random while later, and read what they had said by then."""
    try:
        return {
            session_id: _kill_after_its_first_word(writer, dice.uniform(0, 0.15))
            for session_id, writer in dice.sample(list(writers.items()), len(writers))
        }
    finally:
        for writer in writers.values():
            writer.kill()
            writer.wait()


def _kill_after_its_first_word(writer: "subprocess.Popen[bytes]", seconds: float) -> list[int]:
    assert writer.stdout is not None
    said, deadline = b"", time.monotonic() + 30
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([writer.stdout], [], [], left)
        if ready:
            piece = os.read(writer.stdout.fileno(), 65536)
            if not piece:
                raise RuntimeError(f"A writer ended by itself, with code {writer.wait()}.")
            if not said:
                deadline = time.monotonic() + seconds
            said += piece
    if not said:
        raise RuntimeError("A writer said nothing for 30 s.")
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    lines = (said + rest).decode().rpartition("\n")[0].splitlines()
    return [int(line.split()[1]) for line in lines]


async def _inspect(path: Path, acknowledged: dict[SessionId, int], toll: Toll) -> None:
    """Open what the killed left, as the next host would, and compare it with what they had said."""
    anchor = FileAnchor.beside(path).read()
    records = 0
    async with SqliteStore(path) as store:
        for session_id, last in acknowledged.items():
            events = [stored async for stored in store.events(session_id)]
            numbers = [int(stored.key) for stored in events if stored.key and stored.key.isdigit()]
            ended = [stored.event for stored in events if isinstance(stored.event, TurnEnded)]
            toll.interrupted = max(toll.interrupted, len(ended))
            if any(event.reason is not StopReason.INTERRUPTED for event in ended):
                toll.problems.append(f"{session_id} has turns that ended by themselves")
            records += len(numbers)
            toll.lost += max(0, last - len(numbers))
            # Durable, and its writer did not live to say so: the next one repeats it, and must add nothing.
            toll.unacknowledged += max(0, len(numbers) - last)
            if [stored.seq for stored in events] != list(range(1, len(events) + 1)):
                toll.problems.append(f"{session_id} has gaps in its log")
            if numbers != list(range(1, len(numbers) + 1)):
                toll.problems.append(f"{session_id} has events out of order, missing or twice")
        verdict = await store.read(lambda reads: verify_store(reads, anchor))
        if not verdict.good:
            toll.problems.append(verdict.problem)
        if verdict.seq != records:
            toll.problems.append(f"{verdict.seq} records for {records} events")
    toll.problems.extend(check(path).problems)
    if complaints := (path.parent / "complaints").read_text():
        toll.problems.append(complaints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        toll = soak(Path(folder), cycles=options.cycles, seed=options.seed)
        print(f"seed {options.seed}, {WRITERS} writers: {toll}")
    with tempfile.TemporaryDirectory() as folder:
        control = soak(Path(folder), cycles=options.cycles, early=True, seed=options.seed)
        print(f"control, which acknowledges before it commits: {control}")
    if toll.lost or toll.problems or toll.cycles != options.cycles:
        sys.exit("Acknowledged events were lost, or the log does not hold together.")
    if not control.lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
