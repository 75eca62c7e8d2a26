"""Attack 64: many connections send a small request at the same moment, so that the event loop answers all of them before it does anything else."""

import asyncio
import socket
from time import monotonic
from typing import Any

import pytest

from holdfast.toolkit import http_server
from holdfast.wire.task_turns import TaskTurns

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08", "SES-12")]

CONNECTIONS = 100
"""Each request costs half a millisecond."""


async def most_at_once() -> int:
    """How many requests are answered before another task of the event loop runs, at most."""
    handled = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal handled
        until = monotonic() + 0.0005
        while monotonic() < until:
            pass
        handled += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listening = http_server.bind("127.0.0.1", 0)
    address = listening.getsockname()
    async with http_server.serve_app(app, listening):
        senders = [socket.create_connection(address) for _ in range(CONNECTIONS)]
        for _ in range(2):  # with the first requests, connections are still being accepted
            handled, most, before = 0, 0, 0
            for sender in senders:
                sender.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                while handled < CONNECTIONS:
                    await asyncio.sleep(0)
                    most, before = max(most, handled - before), handled
        for sender in senders:
            sender.close()
    return most


async def test_another_task_waits_for_few_of_them(monkeypatch: pytest.MonkeyPatch):
    found = await most_at_once()
    monkeypatch.setattr(http_server, "run_in_turns", _run_at_once)
    monkeypatch.setattr(TaskTurns, "must_wait", False)
    control = await most_at_once()

    assert found <= CONNECTIONS // 5
    assert control > CONNECTIONS // 2


async def _run_at_once(work: Any, find_turns: Any) -> Any:
    return await work
