"""Attack 42: a remote server floods the event stream of a call, and other sessions wait."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.http.event_stream import EventParser
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.session.session import Session
from holdfast.wire.frame import Notification
from holdfast.wire.loop_throttle import LoopThrottle
from tests.connect.conftest import counter_entry, make_host
from tests.connect.http.flooding_server import FLOODS
from tests.connect.test_isolation import ALONE, ATTEMPTS, MAX_MS
from tests.connect.web import connect_options
from tests.wire.recording import line, recorded_peer

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

SECONDS = 1.0 if ALONE else 0.2
PAUSE = 0.01
SCRIPT = Path(__file__).parents[1] / "connect" / "http" / "flooding_server.py"
TRANSPORTS = ("modern", "handshake", "sse")
FLOODS_IN_SUITE = {
    "modern": ("log messages", "empty lines"),
    "handshake": ("comments", "tiny chunks"),
    "sse": ("progress",),
}
CASES = [
    (transport, kind)
    for transport in TRANSPORTS
    for kind in (FLOODS if ALONE else FLOODS_IN_SUITE[transport])
]


@asynccontextmanager
async def flooding_server(transport: str, kind: str) -> AsyncIterator[dict[str, Any]]:
    """The entry of a server that floods the stream of each call, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(SCRIPT), transport, kind, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield {"type": "sse" if transport == "sse" else "http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.kill()
        await process.wait()


async def p99_during(host: Host, folder: Path, neighbours: list[Session], attacker: str = "") -> float:
    """The latency in milliseconds of the neighbours' calls, while a session calls the attacker."""
    stop = asyncio.Event()

    async def work(session: Session) -> list[float]:
        times: list[float] = []
        while not stop.is_set():
            began = time.perf_counter()
            assert (await session.call("good.count")).ok
            times.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
        return times

    victim = await host.open(OpenOptions(cwd=folder, only_server=attacker)) if attacker else None
    attack = asyncio.create_task(victim.call(f"{attacker}.go")) if victim else None
    working = [asyncio.create_task(work(session)) for session in neighbours]
    await asyncio.sleep(SECONDS)
    stop.set()
    times = [seconds for taken in await asyncio.gather(*working) for seconds in taken]
    if victim is not None and attack is not None:
        assert not attack.done(), attack.result()
        attack.cancel()
        await asyncio.wait([attack])
        await host.close_session(victim)
    return 1000 * statistics.quantiles(times, n=100)[98]


@asynccontextmanager
async def host_with_neighbours(
    make: Any, folder: Path, servers: dict[str, Any]
) -> AsyncIterator[tuple[Host, list[Session]]]:
    async with make({"good": counter_entry(), **servers}, options=connect_options()) as host:
        neighbours = [await host.open(OpenOptions(cwd=folder, only_server="good")) for _ in range(4)]
        await asyncio.gather(*(session.call("good.count") for session in neighbours))
        yield host, neighbours


@pytest.mark.promise("LNK-13")
@pytest.mark.timeout(300)
async def test_flood_of_events_does_not_slow_other_sessions(make_host: Any, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    unbearable: dict[str, tuple[float, float]] = {}
    for transport, kind in CASES:
        async with (
            flooding_server(transport, kind) as entry,
            host_with_neighbours(make_host, folder, {"flood": entry}) as (host, neighbours),
        ):
            calm = flooded = 0.0
            for _ in range(ATTEMPTS):
                calm = await p99_during(host, folder, neighbours)
                flooded = await p99_during(host, folder, neighbours, "flood")
                print(f"{transport}, {kind}: {flooded:.1f} ms, without it {calm:.1f} ms")
                if flooded - calm < MAX_MS:
                    break
            else:
                unbearable[f"{transport}, {kind}"] = (flooded, calm)

    assert unbearable == {}


async def test_control_without_pauses_the_flood_slows_other_sessions(
    make_host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "folder"
    folder.mkdir()
    async with (
        flooding_server("modern", "log messages") as entry,
        host_with_neighbours(make_host, folder, {"flood": entry}) as (host, neighbours),
    ):
        for _ in range(ATTEMPTS):
            protected = await p99_during(host, folder, neighbours, "flood")
            with monkeypatch.context() as patch:
                patch.setattr(LoopThrottle, "count", lambda self, started, may_wait=False: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
                unprotected = await p99_during(host, folder, neighbours, "flood")
            print(f"{unprotected:.1f} ms without pauses, {protected:.1f} ms with them")
            if unprotected > 2 * protected:
                return

    pytest.fail("the flood harms nobody, so the test above proves nothing")


@pytest.mark.parametrize("field", [b"event", b"id"])
async def test_long_names_and_ids_of_events_are_not_decoded(field: bytes):
    parser = EventParser(10_000_000)
    (event,) = parser.feed(field + b": " + b"\xff" * 1_000_000 + b"\ndata: 1\n\n")

    assert (len(event.name) <= 1024, len(event.id) <= 1025, event.data) == (True, True, b"1")


async def test_piece_of_work_counts_in_full():
    throttle = LoopThrottle()
    must_rest = throttle.add(0.3)

    assert (must_rest, throttle.begin_rest() > 0.5) == (True, True)


async def test_large_notifications_of_a_local_server_rest():
    received = 0

    def receive(notification: Notification) -> None:
        nonlocal received
        received += 1
        end = time.monotonic() + 0.002  # costly to handle
        while time.monotonic() < end:
            pass

    async with recorded_peer(on_notification=receive) as (peer, transport):
        began = time.monotonic()
        for _ in range(100):
            peer.data_received(line(method="n", params={"a": "x" * 5000}))  # one per chunk
            while not transport.reading:
                await asyncio.sleep(0.001)
        seconds = time.monotonic() - began

    assert (received, seconds > 2 * 100 * 0.002) == (100, True)
