import asyncio
from typing import Any

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.frame import Notification, Request
from holdfast.wire.memory import joined
from holdfast.wire.peer import Peer

pytestmark = pytest.mark.anyio


async def test_when_one_side_closes_the_other_side_knows():
    one, other = Peer(), Peer()
    async with joined(one, other):
        asking = asyncio.create_task(other.request("m"))
        await asyncio.sleep(0)
        await one.close()
        with pytest.raises(HoldfastError, match="closed"):
            await asking
        await other.ended.wait()


async def test_a_slow_side_holds_up_the_fast_one_and_nothing_is_lost():
    heard = 0
    busy = asyncio.Event()

    async def wait(request: Request) -> Any:
        await busy.wait()
        return {}

    def hear(notification: Notification) -> None:
        nonlocal heard
        heard += 1

    one, other = Peer(), Peer(handle=wait, notice=hear, limits=Limits(in_flight=2))
    async with joined(one, other), asyncio.timeout(10):
        asking = [asyncio.create_task(one.request("m")) for _ in range(4)]
        telling = asyncio.create_task(_tell(one, 1000))
        while one._writable.is_set():
            await asyncio.sleep(0)
        held_up = (heard, telling.done())
        busy.set()
        await asyncio.gather(telling, *asking)
        while heard < 1000:
            await asyncio.sleep(0)

    assert held_up == (0, False)


async def _tell(peer: Peer, times: int) -> None:
    for _ in range(times):
        await peer.notify("n", {"a": "x" * 1000})
