"""Attack 64: many large answers at the same time that the client does not read, so that they stay in memory."""

import asyncio
import socket
from typing import Any

import pytest

from holdfast.toolkit.http_server import ConnectionLimits, bind, serve_app

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08", "SES-12")]

ANSWER_BYTES = 8 * 1024 * 1024  # more than the kernel takes
CLIENTS = 10
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Answers:
    """An application whose answers are large. It counts them."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * ANSWER_BYTES, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.ended += 1


def client_that_does_not_read(address: tuple[str, int]) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(REQUEST)
    return client


async def unread_answers(unread_bytes: int, *, expected: int) -> tuple[int, int]:
    """How many unread answers are given up, once as many as expected were, and how many bytes a client gets that reads."""
    app, listening = Answers(), bind("127.0.0.1", 0)
    address = listening.getsockname()
    limits = ConnectionLimits(unread_bytes=unread_bytes, crowded_write_seconds=0.0)
    async with serve_app(app, listening, limits), asyncio.timeout(60):
        clients = [client_that_does_not_read(address) for _ in range(CLIENTS)]
        while app.begun < CLIENTS or app.ended < expected:
            await asyncio.sleep(0)
        given_up = app.ended
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        received = 0
        while size := int(await reader.readline(), 16):
            received += len(await reader.readexactly(size))
            await reader.readline()
        writer.close()
        for client in clients:
            client.close()
    return given_up, received


async def test_the_oldest_of_many_unread_answers_are_given_up():
    given_up, received = await unread_answers(2 * ANSWER_BYTES, expected=CLIENTS // 2)
    control, _ = await unread_answers(1 << 40, expected=0)

    assert given_up >= CLIENTS // 2
    assert received == ANSWER_BYTES
    assert control == 0
