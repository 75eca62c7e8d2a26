"""Attack 64: one client, or none, uses up what the gateway has for all its clients."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.toolkit.http_server import ConnectionLimits
from tests.gateway.running import Client, RunningGateway, running_gateway, try_to_open

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

SLOW = 300
HEAD = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HOSTILE = Path(__file__).parent / "answers_for_others_server.py"


@asynccontextmanager
async def slow_clients(running: RunningGateway, start: str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that send the start of a request, and then nothing."""
    url = urlsplit(running.url)
    streams = [await asyncio.open_connection(url.hostname, url.port) for _ in range(SLOW)]
    for _, writer in streams:
        writer.write(start.encode())
    try:
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.close()


async def is_closed(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(65536):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def status_of(reader: asyncio.StreamReader) -> str:
    try:
        line = await asyncio.wait_for(reader.readline(), 60)
    except ConnectionError:
        return "closed"
    return line.split()[1].decode() if line else "closed"


@pytest.mark.slow
async def test_slow_heads_and_bodies_are_cut_off_and_others_are_served(tmp_path: Path):
    limits = ConnectionLimits(head_seconds=1.0)
    async with (
        running_gateway(tmp_path, limits=limits) as running,
        Client(running.url, running.token()) as client,
    ):
        async with slow_clients(running, "POST /mcp HT") as heads:
            counts = [(await client.call("add"))["count"] for _ in range(5)]
            closed = await asyncio.gather(*(is_closed(reader, 60) for reader in heads))
        async with slow_clients(running, f"{HEAD}Content-Length: 100000\r\n\r\n{{") as bodies:
            counts += [(await client.call("add"))["count"] for _ in range(5)]
            # Without a token, the body is not waited for: the answer comes at once, and the connection may end first.
            answered = await asyncio.gather(*(status_of(reader) for reader in bodies))

    assert (counts, all(closed)) == ([*range(1, 11)], True)
    assert set(answered) <= {"401", "closed"}


async def test_control_without_the_limit_slow_clients_stay(tmp_path: Path):
    limits = ConnectionLimits(head_seconds=3600.0)
    async with (
        running_gateway(tmp_path, limits=limits) as running,
        slow_clients(running, "POST /mcp HT") as heads,
    ):
        assert await is_closed(heads[0], 2.0) is False


@pytest.mark.slow
async def test_sessions_that_are_never_used_make_room_for_new_ones(tmp_path: Path):
    limits = {"HOLDFAST_GATEWAY_MAX_SESSIONS": "4", "HOLDFAST_GATEWAY_MAX_SESSIONS_PER_TOKEN": "3"}
    async with (
        running_gateway(tmp_path, limits) as running,
        Client(running.url, running.token("neighbour")) as neighbour,
    ):
        await neighbour.call("add")
        flooder = running.token("flooder")
        flood = [(await try_to_open(running.url, flooder)).status_code for _ in range(8)]
        open_sessions = len(running.gateway.app.open_sessions())
        count = (await neighbour.call("add"))["count"]

    assert (set(flood) <= {200, 503}, open_sessions <= 4, count) == (True, True, 2)


async def test_a_server_cannot_answer_the_calls_of_another_session(tmp_path: Path):
    servers = {"liar": {"command": sys.executable, "args": [str(HOSTILE)]}}
    async with (
        running_gateway(tmp_path, servers=servers) as running,
        Client(running.url, running.token("one")) as one,
        Client(running.url, running.token("two")) as two,
    ):
        waiting = asyncio.create_task(two.call("honest", text="for two"))
        flooded = await one.call("answer_all", text="for one")
        control = await one.call("honest", text="again one")
        answer = await waiting

    assert "for two" in json.dumps(answer)
    assert ("for one" in json.dumps(flooded), "again one" in json.dumps(control)) == (True, True)
