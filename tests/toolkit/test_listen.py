"""Clients that are slow, or that never say anything, are let go; others are not held up by them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.toolkit.listen import Impatient, bound, listen

pytestmark = pytest.mark.anyio

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(Impatient, "seconds", 0.3)
    sock = bound("127.0.0.1", 0)
    async with listen(application, sock):
        yield sock.getsockname()[1]


async def answer(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """All that comes back until the server hangs up, or the first answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        async with asyncio.timeout(5):
            return await reader.read(1000)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_request_in_time_is_answered_and_the_connection_kept(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(REQUEST + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.35)  # an idle connection is no slow client
    writer.close()


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"G",),
        (REQUEST,),
        (REQUEST, *[b"X: y\r\n"] * 20),
    ],
    ids=["silent", "one byte", "no end", "drop by drop"],
)
async def test_headers_that_do_not_come_in_time_are_not_waited_for(port: int, pieces: tuple[bytes, ...]):
    began = time.monotonic()

    assert await answer(port, *pieces, pause=0.03) == b""
    assert time.monotonic() - began < 3


async def test_headers_without_end_are_cut_off(port: int):
    assert await answer(port, REQUEST, *[b"X: " + b"y" * 60_000 + b"\r\n"] * 10) == b""


async def test_three_hundred_slow_clients_hold_up_nobody(port: int):
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
    for _, writer in slow:
        writer.write(REQUEST)

    began = time.monotonic()
    quick = await answer(port, REQUEST + b"\r\n")
    took = time.monotonic() - began
    async with asyncio.timeout(5):
        left = await asyncio.gather(*(reader.read(1) for reader, _ in slow), return_exceptions=True)
    for _, writer in slow:
        writer.close()

    assert quick.startswith(b"HTTP/1.1 200")
    assert took < 1
    assert all(isinstance(end, ConnectionError) or end == b"" for end in left)
