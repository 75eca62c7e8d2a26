"""Kill writers at random moments and count lost events: `python -m tests.store.soak --cycles 300`."""

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

from holdfast.audit.audit import verify_store
from holdfast.model.event import StopReason, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.maintenance import check
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.testing.store_contract.factories import create_session

WRITERS = 2
ROOT = Path(__file__).parents[2]


@dataclass
class KillReport:
    """The losses of the kills."""

    cycles: int = 0
    acknowledged: int = 0
    lost: int = 0
    unacknowledged: int = 0
    interrupted: int = 0
    problems: list[str] = field(default_factory=list[str])


def soak(folder: Path, *, cycles: int, acknowledge_early: bool = False, seed: int = 1) -> KillReport:
    """Run and kill writers. Each cycle continues with the store of the previous one; every ten cycles a new store is used."""
    rng, report = random.Random(seed), KillReport()
    while report.cycles < cycles and not report.problems and not (acknowledge_early and report.lost):
        run_folder = folder / f"from{report.cycles}"
        _run_cycles(
            run_folder / "holdfast.db",
            min(10, cycles - report.cycles),
            rng,
            report,
            acknowledge_early=acknowledge_early,
        )
        shutil.rmtree(run_folder)
    return report


def _run_cycles(
    path: Path, cycles: int, rng: random.Random, report: KillReport, *, acknowledge_early: bool
) -> None:
    sessions = asyncio.run(_sessions(path))
    acknowledged: dict[SessionId, int] = dict.fromkeys(sessions, 0)
    for _ in range(cycles):
        writers = {
            session_id: _start(path, session_id, acknowledge_early=acknowledge_early)
            for session_id in sessions
        }
        for session_id, numbers in _kill_all(writers, rng).items():
            report.acknowledged += max(0, max(numbers, default=0) - acknowledged[session_id])
            acknowledged[session_id] = max([acknowledged[session_id], *numbers])
        report.cycles += 1
        asyncio.run(_inspect(path, acknowledged, report))
        if report.problems or (acknowledge_early and report.lost):
            break


async def _sessions(path: Path) -> list[SessionId]:
    async with SqliteStore(path) as store:
        return [(await create_session(store)).context.session_id for _ in range(WRITERS)]


def _start(path: Path, session_id: SessionId, *, acknowledge_early: bool) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.store.soak_writer", str(path), session_id]
    with (path.parent / "stderr.log").open("ab") as stderr_log:
        return subprocess.Popen(
            [*command, "--early"] if acknowledge_early else command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stderr_log,
        )


def _kill_all(
    writers: dict[SessionId, "subprocess.Popen[bytes]"], rng: random.Random
) -> dict[SessionId, list[int]]:
    """Kill each writer at a random time after its first line, and return the events that it acknowledged."""
    try:
        return {
            session_id: _kill_after_first_line(writer, rng.uniform(0, 0.15))
            for session_id, writer in rng.sample(list(writers.items()), len(writers))
        }
    finally:
        for writer in writers.values():
            writer.kill()
            writer.wait()


def _kill_after_first_line(writer: "subprocess.Popen[bytes]", seconds: float) -> list[int]:
    assert writer.stdout is not None
    output, deadline = b"", time.monotonic() + 30
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([writer.stdout], [], [], left)
        if ready:
            piece = os.read(writer.stdout.fileno(), 65536)
            if not piece:
                raise RuntimeError(f"A writer exited with code {writer.wait()}.")
            if not output:
                deadline = time.monotonic() + seconds
            output += piece
    if not output:
        raise RuntimeError("A writer printed nothing for 30 s.")
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    lines = (output + rest).decode().rpartition("\n")[0].splitlines()
    return [int(line.split()[1]) for line in lines]


async def _inspect(path: Path, acknowledged: dict[SessionId, int], report: KillReport) -> None:
    """Open the store like the next host, and compare it with the acknowledged events."""
    anchor = FileAnchor.for_database(path).read()
    records = 0
    async with SqliteStore(path) as store:
        for session_id, last in acknowledged.items():
            events = [stored async for stored in store.events(session_id)]
            numbers = [int(stored.key) for stored in events if stored.key and stored.key.isdigit()]
            ended = [stored.event for stored in events if isinstance(stored.event, TurnEnded)]
            report.interrupted = max(report.interrupted, len(ended))
            if any(event.reason is not StopReason.INTERRUPTED for event in ended):
                report.problems.append(f"{session_id} has turns that were not interrupted")
            records += len(numbers)
            report.lost += max(0, last - len(numbers))
            # Durable but not acknowledged: the next writer repeats it, and that must add nothing.
            report.unacknowledged += max(0, len(numbers) - last)
            if [stored.seq for stored in events] != list(range(1, len(events) + 1)):
                report.problems.append(f"{session_id} has gaps in its log")
            if numbers != list(range(1, len(numbers) + 1)):
                report.problems.append(f"{session_id} has missing, duplicate or unordered events")
        verdict = await store.read(lambda tx: verify_store(tx, anchor))
        if not verdict.is_intact:
            report.problems.append(verdict.problem)
        if verdict.seq != records:
            report.problems.append(f"{verdict.seq} records for {records} events")
    report.problems.extend(check(path).problems)
    if stderr_log := (path.parent / "stderr.log").read_text():
        report.problems.append(stderr_log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), cycles=options.cycles, seed=options.seed)
        print(f"seed {options.seed}, {WRITERS} writers: {report}")
    with tempfile.TemporaryDirectory() as folder:
        control = soak(Path(folder), cycles=options.cycles, acknowledge_early=True, seed=options.seed)
        print(f"control, which acknowledges before it commits: {control}")
    if report.lost or report.problems or report.cycles != options.cycles:
        sys.exit("Acknowledged events were lost, or the log is inconsistent.")
    if not control.lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
