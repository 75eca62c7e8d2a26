"""Attack 19: a confined server with a network grant floods its proxy, which shares the host's event loop with all sessions."""

import asyncio
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.model.process import Confinement
from holdfast.sandbox.bwrap import egress_proxy
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from tests.builtin.support import Files

pytestmark = pytest.mark.anyio

LIMIT = 64
CALLS = 150
ATTEMPTS = 4  # a delay caused by another process is not repeated; one caused by Holdfast is
MAX_DELAY = 0.05
FLOODS = {
    "connections": """
while True:
    several = []
    for _ in range(50):
        s = socket.socket(); s.setblocking(False)
        try: s.connect(address)
        except OSError: pass
        several.append(s)
    for s in several: s.close()
""",
    "refused requests": """
while True:
    try:
        s = socket.create_connection(address, 0.05)
        s.sendall(b'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n'); s.close()
    except OSError: pass
""",
    "single bytes": """
several = []
for _ in range(60):
    try: several.append(socket.create_connection(address, 0.2))
    except OSError: pass
for s in several: s.setblocking(False)
while True:
    for s in several:
        try: s.send(b'a')
        except OSError: pass
""",
}


class CountingProxy(EgressProxy):
    """Counts the connections that it has accepted."""

    accepted = 0

    async def _serve_client(self, client: socket.socket) -> None:
        self.accepted += 1
        await super()._serve_client(client)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[socket.socket, tuple[str, int]]]:
    with socket.create_server(("127.0.0.1", 0), backlog=LIMIT) as listener:
        yield listener, listener.getsockname()


@asynccontextmanager
async def flood(kind: str, address: tuple[str, int]) -> AsyncIterator[None]:
    code = f"import socket, sys\naddress = ('127.0.0.1', int(sys.argv[1]))\nprint(flush=True)\n{FLOODS[kind]}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", code, str(address[1]), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


async def latency_of_calls(files: Files) -> float:
    """How long another session's calls take, in the median."""
    times: list[float] = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await files.call("read", path="file")
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@pytest.mark.parametrize("kind", FLOODS)
async def test_calls_of_another_session_are_not_slowed_down(kind: str, tmp_path: Path):
    """Compared with the same flood against a listener that is not served."""
    (tmp_path / "file").write_text("text")
    files, delays = Files(tmp_path), list[float]()

    while len(delays) < ATTEMPTS and (not delays or delays[-1] > MAX_DELAY):
        async with listening() as (_, address), flood(kind, address):
            calm = await latency_of_calls(files)
        async with listening() as (listener, address):
            proxy = CountingProxy(Confinement(network=("example.org",)))
            began = time.monotonic()
            await proxy.serve(listener.dup())
            async with flood(kind, address):
                while not proxy.accepted:
                    await asyncio.sleep(0.001)
                delays.append(await latency_of_calls(files) - calm)
                seconds = time.monotonic() - began
            proxy.close()
            assert proxy.accepted <= LIMIT + 100 * seconds + 1

    assert delays[-1] < MAX_DELAY, delays


async def test_server_that_accepts_first_and_counts_afterwards_works_for_every_connection(tmp_path: Path):
    """Control: asyncio's server, and a refusal of connections over the limit."""
    accepted = 0

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    async with listening() as (listener, address):
        server = await asyncio.start_server(refuse, sock=listener.dup())
        began = time.monotonic()
        async with flood("connections", address), asyncio.timeout(30):
            while accepted <= LIMIT + 100 * (time.monotonic() - began) + 200:
                await asyncio.sleep(0.001)
        server.close()


async def test_connections_over_the_limit_wait_until_another_ends():
    proxy = CountingProxy(Confinement(network=("example.org",)))
    async with listening() as (listener, address), asyncio.timeout(30):
        await proxy.serve(listener.dup())
        clients = [await asyncio.open_connection(*address) for _ in range(LIMIT + 5)]
        while proxy.accepted < LIMIT:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        at_the_limit = proxy.accepted
        clients[0][1].close()
        while proxy.accepted == at_the_limit:
            await asyncio.sleep(0.001)
        accepted = proxy.accepted
        for _, writer in clients:
            writer.close()
        proxy.close()

    assert (at_the_limit, accepted) == (LIMIT, LIMIT + 1)


@pytest.mark.parametrize("limit", [80, 1 << 20], ids=["attack", "control"])
async def test_idle_connections_of_one_sandbox_leave_descriptors_for_another(
    limit: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(egress_proxy, "descriptor_limit", lambda: limit)
    greedy, other = (CountingProxy(Confinement(network=("example.org",))) for _ in range(2))
    async with (
        listening() as (greedy_listener, greedy_address),
        listening() as (other_listener, other_address),
        asyncio.timeout(30),
    ):
        await greedy.serve(greedy_listener.dup())
        await other.serve(other_listener.dup())
        clients = [await asyncio.open_connection(*greedy_address) for _ in range(20)]
        # Of 80 descriptors, 20 are for connections; half of those stay free.
        expected = 5 if limit == 80 else 20
        while greedy.accepted < expected:
            await asyncio.sleep(0.001)
        clients.append(await asyncio.open_connection(*other_address))
        while not other.accepted:
            await asyncio.sleep(0.001)
        assert greedy.accepted == expected

        for _, writer in clients[: expected + 1]:
            writer.close()
        while greedy.accepted < min(expected + 5, 20):  # those that waited
            await asyncio.sleep(0.001)
        for _, writer in clients:
            writer.close()
        greedy.close()
        other.close()
