import asyncio
from typing import Any

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.messages import Notification, Request
from holdfast.wire.peer import Peer

pytestmark = pytest.mark.anyio


async def test_closing_one_peer_ends_the_other():
    one, other = Peer(), Peer()
    async with connect_memory(one, other):
        pending = asyncio.create_task(other.request("m"))
        await asyncio.sleep(0)
        await one.close()
        with pytest.raises(HoldfastError, match="closed"):
            await pending
        await other.ended.wait()


async def test_slow_reader_makes_the_sender_wait_and_nothing_is_lost():
    received = 0
    busy = asyncio.Event()

    async def wait(request: Request) -> Any:
        await busy.wait()
        return {}

    def receive(notification: Notification) -> None:
        nonlocal received
        received += 1

    one, other = Peer(), Peer(on_request=wait, on_notification=receive, limits=Limits(in_flight=2))
    async with connect_memory(one, other), asyncio.timeout(10):
        pending = [asyncio.create_task(one.request("m")) for _ in range(2)]
        sending = asyncio.create_task(_notify(one, 1000))
        while one._writable.is_set():
            await asyncio.sleep(0)
        paused = (received, sending.done())
        busy.set()
        await asyncio.gather(sending, *pending)
        while received < 1000:
            await asyncio.sleep(0)

    assert paused == (0, False)


async def _notify(peer: Peer, times: int) -> None:
    for _ in range(times):
        await peer.notify("n", {"a": "x" * 1000})
