"""Sessions without servers: what it costs to open and close one, in a store on disk and without keeping it.

A session that is kept waits for two commits: its row must be on disk before its id is given away, and its end before the
block ends. How long a commit takes depends on the disk, so it is measured in the same run, through the same writer thread.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.result import Result
from holdfast import Host, SessionContext, Trust, settings
from holdfast.events import ToolStarted
from holdfast.model.ids import new_session_id
from holdfast.store.types import NewSession

COUNT, WARM_UP, ROUNDS = 100, 50, 5
MAX_MS = 2.0


def results() -> list[Result]:
    kept, unkept, commit = asyncio.run(_measure())
    return [
        Result(
            name="session.empty",
            ours=kept,
            peer=MAX_MS + 2 * commit,
            peer_name=f"{MAX_MS:g} ms, and two commits of {commit:.2f} ms",
            unit="ms",
            goal="<= 1",
        ),
        Result(
            name="session.empty.unkept",
            ours=unkept,
            peer=MAX_MS,
            peer_name="what opening and closing it may take",
            unit="ms",
            goal="<= 1",
        ),
    ]


async def _measure() -> tuple[float, float, float]:
    """The medians in milliseconds, each in the best of all rounds: another process may use the disk."""
    async with _open_host() as (host, cwd):
        context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
        await host.store.create(NewSession(context=context))
        hold = await host.store.acquire(context.session_id)

        async def open_and_close(*, keep: bool) -> None:
            async with host.session(cwd=cwd, only_these=True, keep=keep):
                pass

        measured: list[Callable[[], Awaitable[object]]] = [
            lambda: open_and_close(keep=True),
            lambda: open_and_close(keep=False),
            lambda: host.store.append(hold, ToolStarted(call_id="call_1")),
        ]
        for run in measured:
            await _median(run, WARM_UP)
        # In turn, so that all see the same disk.
        rounds = [[await _median(run, COUNT) for run in measured] for _ in range(ROUNDS)]
        kept, unkept, commit = (min(times) for times in zip(*rounds, strict=True))
        return kept, unkept, commit


@asynccontextmanager
async def _open_host() -> AsyncIterator[tuple[Host, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        config, cwd = Path(folder) / "config.toml", Path(folder) / "project"
        config.touch()
        cwd.mkdir()
        environ = {**os.environ, "HOLDFAST_DATA_DIR": str(Path(folder) / "data")}
        async with Host(settings=settings.load(config, environ)) as host:
            yield host, cwd


async def _median(run: Callable[[], Awaitable[object]], count: int) -> float:
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await run()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
