"""Sessions without servers: what it costs to open and close one, in a store on disk and without keeping it."""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.result import Result
from holdfast import Host, settings

SESSIONS, WARM_UP, ROUNDS = 100, 50, 5
MAX_MS = 2.0


def results() -> list[Result]:
    return [
        Result(
            name=name,
            ours=asyncio.run(_measure(keep=keep)),
            peer=MAX_MS,
            peer_name="what opening and closing it may take",
            unit="ms",
            goal="<= 1",
        )
        for name, keep in (("session.empty", True), ("session.empty.unkept", False))
    ]


async def _measure(*, keep: bool) -> float:
    """The median in milliseconds, in the best of all rounds: another process may use the disk."""
    with tempfile.TemporaryDirectory() as folder:
        config, cwd = Path(folder) / "config.toml", Path(folder) / "project"
        config.touch()
        cwd.mkdir()
        environ = {**os.environ, "HOLDFAST_DATA_DIR": str(Path(folder) / "data")}
        async with Host(settings=settings.load(config, environ)) as host:

            async def measure_round(count: int) -> float:
                times: list[float] = []
                for _ in range(count):
                    began = time.perf_counter()
                    async with host.session(cwd=cwd, only_these=True, keep=keep):
                        pass
                    times.append(time.perf_counter() - began)
                return statistics.median(times) * 1000

            await measure_round(WARM_UP)
            return min([await measure_round(SESSIONS) for _ in range(ROUNDS)])
