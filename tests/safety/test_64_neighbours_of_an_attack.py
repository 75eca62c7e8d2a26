"""Attack 64, timed: while one client attacks the gateway, the calls of another take hardly longer than in a calm moment.

Calm and attacked calls are made in turns on the same gateway, which is a process of its own. A busy machine slows down both.
By default, one attack runs, in one round; `make soak-up` runs all.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.gateway.running import Client
from tests.journeys.conftest import cwd, home
from tests.journeys.up import add_counter, run, running_up

__all__ = ["cwd", "home"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08", "SES-12")]

ALL = "HOLDFAST_UP_CYCLES" in os.environ
CALLS, ROUNDS, SLOW = (100, 2, 300) if ALL else (30, 1, 300)
ALLOWED_SECONDS, ALLOWED_FACTOR = 0.05, 8
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "flood", "version": "1"},
        },
    }
)
HEAD = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def p99(client: Client) -> float:
    """The time that 99 of 100 calls take at most."""
    times: list[float] = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await client.call("add")
        times.append(time.perf_counter() - began)
    return sorted(times)[-max(1, CALLS // 100)]


@asynccontextmanager
async def slow_loris(url: str, token: str) -> AsyncIterator[None]:
    """300 connections that send one byte of a head, and then nothing."""
    parts = urlsplit(url)
    writers = [(await asyncio.open_connection(parts.hostname, parts.port))[1] for _ in range(SLOW)]
    for writer in writers:
        writer.write(b"P")
    yield
    for writer in writers:
        writer.close()


@asynccontextmanager
async def session_flood(url: str, token: str) -> AsyncIterator[None]:
    """Sessions are opened as fast as the gateway answers."""

    parts = urlsplit(url)
    head = f"{HEAD}Authorization: Bearer {token}\r\nContent-Length: {len(INITIALIZE)}\r\n\r\n"
    is_limited = asyncio.Event()

    async def flood() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            while True:
                writer.write(f"{head}{INITIALIZE}".encode())
                answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                await reader.readexactly(int(answer.partition("content-length: ")[2].split()[0]))
                if answer.split()[1] == "429":
                    is_limited.set()
        finally:
            writer.close()

    async with _repeated(flood, 2):
        await is_limited.wait()
        yield


@asynccontextmanager
async def oversized_bodies(url: str, token: str) -> AsyncIterator[None]:
    """Bodies that say to be larger than allowed, and chunked ones that do not say it."""
    parts = urlsplit(url)
    heads = ("Content-Length: 100000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n80000\r\n")

    async def send(head: str) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(f"{HEAD}Authorization: Bearer {token}\r\n{head}".encode())
            for _ in range(12):
                writer.write(b"x" * 0x80000 + b"\r\n80000\r\n")
                await writer.drain()
            while await reader.read(65536):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    async def flood() -> None:
        while True:
            for head in heads:
                async with asyncio.timeout(
                    60
                ):  # `wait_for` of Python 3.11 may ignore a cancellation, and this never ends
                    await send(head)

    async with _repeated(flood, 2):
        yield


@pytest.mark.timeout(300)
@pytest.mark.parametrize("attack", [slow_loris, session_flood, oversized_bodies] if ALL else [slow_loris])
async def test_calls_of_a_neighbour_take_hardly_longer(
    attack: Callable[[str, str], AbstractAsyncContextManager[None]], home: Path, cwd: Path
):
    add_counter(home)
    # Without this limit, the machine would be busy with starting servers for a minute.
    (home / "config" / "holdfast" / "config.toml").write_text("[gateway]\nmax_new_sessions_per_minute = 4\n")
    tokens = [run(home, "tokens", "create", name, "--mode", "auto").stdout.strip() for name in ("one", "two")]
    calm: list[float] = []
    attacked: list[float] = []
    async with running_up(home, cwd) as up, Client(up.url, tokens[0]) as neighbour:
        await neighbour.call("add")
        for _ in range(ROUNDS):
            calm.append(await p99(neighbour))
            async with attack(up.url, tokens[1]):
                attacked.append(await p99(neighbour))

    assert min(attacked) <= max(ALLOWED_SECONDS, ALLOWED_FACTOR * min(calm)), (calm, attacked)


@asynccontextmanager
async def _repeated(work: Callable[[], Awaitable[None]], number: int) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work()) for _ in range(number)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
