"""Bodies in memory: how much callers may hold, and which body is dropped when it is too much."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http import HttpLimits
from holdfast.wire.http.bodies import Bodies
from holdfast.wire.http.limits import CallerQuota

LIMITS = HttpLimits(body_memory=100, body_memory_per_caller=80)


@given(st.lists(st.tuples(st.sampled_from(["", "ann", "bob"]), st.integers(0, 60))))
def test_quota_is_never_exceeded_and_is_free_again_in_the_end(amounts: list[tuple[str, int]]):
    quota, held = CallerQuota(total=100, share=50), list[tuple[str, int]]()
    for owner, amount in amounts:
        if quota.try_acquire(owner, amount):
            held.append((owner, amount))
        of_ann = sum(size for holder, size in held if holder == "ann")
        assert quota.used == sum(size for _, size in held) <= 100
        assert of_ann <= 50
    for owner, amount in held:
        quota.release(owner, amount)

    assert (quota.used, quota.try_acquire("ann", 50)) == (0, True)


class Sender:
    """Sends a body in parts, when the test says so."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()

    def send(self, part: bytes, *, more: bool) -> None:
        self._parts.put_nowait((part, more))

    async def receive(self) -> Any:
        part, more = await self._parts.get()
        return {"type": "http.request", "body": part, "more_body": more}


async def read(bodies: Bodies, sender: Sender, owner: str = "") -> str:
    """The body, or the code of the error."""
    try:
        async with bodies.read(sender.receive, {}, owner) as body:
            return body.decode()
    except HoldfastError as error:
        return error.code.name


async def pause() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_oldest_unfinished_body_is_dropped_even_if_its_end_arrives_at_that_moment():
    bodies, old, new = Bodies(LIMITS), Sender(), Sender()
    first, second = (asyncio.ensure_future(read(bodies, sender)) for sender in (old, new))
    old.send(b"a" * 60, more=True)
    await pause()

    new.send(b"b" * 60, more=False)
    old.send(b"a", more=False)

    assert await asyncio.gather(first, second) == [codes.BUSY.name, "b" * 60]
    assert bodies.memory.used == 0


@pytest.mark.anyio
async def test_caller_whose_share_is_used_up_loses_only_its_own_body():
    bodies, of_bob, old, new = Bodies(LIMITS), Sender(), Sender(), Sender()
    readings = [
        asyncio.ensure_future(read(bodies, sender, owner))
        for sender, owner in ((of_bob, "bob"), (old, "ann"), (new, "ann"))
    ]
    of_bob.send(b"o" * 10, more=True)
    old.send(b"a" * 50, more=True)
    await pause()

    new.send(b"b" * 40, more=False)
    await pause()
    of_bob.send(b"k", more=False)

    assert await asyncio.gather(*readings) == ["o" * 10 + "k", codes.BUSY.name, "b" * 40]


@pytest.mark.anyio
async def test_body_of_a_running_request_is_never_dropped():
    bodies, running, new = Bodies(LIMITS), Sender(), Sender()
    running.send(b"a" * 60, more=False)
    new.send(b"b" * 60, more=False)

    async with bodies.read(running.receive, {}, "") as body:
        refused = await read(bodies, new)

    assert (body, refused, bodies.memory.used) == (b"a" * 60, codes.BUSY.name, 0)
