"""Attack 64: many connections send a small request at the same moment, so that the event loop answers all of them before it does anything else."""

import asyncio
import socket
from time import monotonic
from typing import Any

import httpx
import pytest

from holdfast.toolkit import Toolbox, http_server
from holdfast.wire.http import receiver
from holdfast.wire.task_turns import TaskTurns
from tests.gateway.running import modern_call

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08", "SES-12")]

CONNECTIONS = 60
"""Each request costs half a millisecond."""


def spin() -> None:
    """The work for a request."""
    until = monotonic() + 0.0005
    while monotonic() < until:
        pass


async def most_at_once() -> int:
    """How many requests are answered before another task of the event loop runs, at most."""
    handled = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal handled
        spin()
        handled += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listening = http_server.bind("127.0.0.1", 0)
    address = listening.getsockname()
    async with http_server.serve_app(app, listening):
        senders = [socket.create_connection(address) for _ in range(CONNECTIONS)]
        for _ in range(2):  # with the first requests, connections are still being accepted
            handled, before = 0, 0
            for sender in senders:
                sender.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                while handled < CONNECTIONS:
                    await asyncio.sleep(0)
                    most, before = max(most, handled - before), handled
        for sender in senders:
            sender.close()
    return most


async def most_at_once_in_an_application() -> int:
    """The same for a box that another server serves."""
    handled = most = before = 0
    box = Toolbox("shop")

    @box.tool()
    async def look() -> str:
        """Look."""
        nonlocal handled
        spin()
        handled += 1
        return "seen"

    body, headers = modern_call("look")
    transport = httpx.ASGITransport(box.http_app(), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
        calls = [
            asyncio.create_task(http.post("/mcp", json=body, headers=headers)) for _ in range(CONNECTIONS)
        ]
        while handled < CONNECTIONS and not all(call.done() for call in calls):
            await asyncio.sleep(0)
            most, before = max(most, handled - before), handled
        assert {(await call).status_code for call in calls} == {200}
    return most


async def test_another_task_waits_for_few_of_them(monkeypatch: pytest.MonkeyPatch):
    # The share of the time to parse requests is another protection: it begins later.
    monkeypatch.setattr(http_server, "_BURST_SECONDS", 60.0)
    monkeypatch.setattr(receiver, "BURST_SECONDS", 60.0)
    found = await most_at_once(), await most_at_once_in_an_application()
    monkeypatch.setattr(TaskTurns, "must_wait", _never_wait)
    control = await most_at_once(), await most_at_once_in_an_application()

    assert max(found) <= CONNECTIONS // 5
    assert min(control) > CONNECTIONS // 2


def _never_wait(turns: TaskTurns) -> bool:
    return False
