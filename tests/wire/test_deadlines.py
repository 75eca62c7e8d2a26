"""One timer for the deadlines of all requests."""

import asyncio
import gc
import time
import weakref
from contextvars import ContextVar

import pytest

from holdfast.wire.deadlines import Deadlines
from holdfast.wire.messages import Id

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Each test runs with both event loops."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_requests_expire_in_order_and_removed_ones_never_do():
    expired: list[Id] = []
    over = asyncio.Event()

    def expire(request_id: Id) -> None:
        expired.append(request_id)
        if request_id == "last":
            over.set()

    deadlines = Deadlines(asyncio.get_running_loop(), expire)
    for request_id, seconds in (("last", 0.06), ("first", 0.02), ("removed", 0.03), ("second", 0.04)):
        deadlines.add(request_id, seconds)
    deadlines.remove("removed")
    await asyncio.wait_for(over.wait(), 5)

    assert expired == ["first", "second", "last"]


async def test_deadlines_that_are_overdue_together_expire_in_their_order():
    expired: list[Id] = []
    deadlines = Deadlines(asyncio.get_running_loop(), expired.append)
    for request_id, seconds in (("last", 0.003), ("first", 0.001), ("second", 0.002)):
        deadlines.add(request_id, seconds)
    time.sleep(0.01)  # the event loop is busy

    async with asyncio.timeout(10):
        while len(expired) < 3:
            await asyncio.sleep(0)

    assert expired == ["first", "second", "last"]


async def test_a_deadline_can_be_added_while_the_timer_is_due():
    expired: list[Id] = []
    deadlines = Deadlines(asyncio.get_running_loop(), expired.append)
    deadlines.add("due", 0)  # uvloop gives such a timer no time
    deadlines.add("later", 60)
    async with asyncio.timeout(10):
        while not expired:
            await asyncio.sleep(0)
    deadlines.close()

    assert expired == ["due"]


class Kept:
    """An object that can be weakly referenced."""


_variable: ContextVar[Kept] = ContextVar("kept")


async def test_the_timer_does_not_keep_the_context_of_the_request_that_set_it():
    deadlines = Deadlines(asyncio.get_running_loop(), lambda request_id: None)

    async def request() -> weakref.ref[Kept]:
        kept = Kept()
        _variable.set(kept)
        deadlines.add("request", 60)
        deadlines.remove("request")
        return weakref.ref(kept)

    reference = await asyncio.create_task(request())
    await asyncio.sleep(0)
    gc.collect()

    assert reference() is None
    deadlines.close()


async def test_removing_a_request_keeps_the_timer():
    deadlines = Deadlines(asyncio.get_running_loop(), lambda request_id: None)
    timers: list[object] = []
    for request_id in range(3):
        deadlines.add(request_id, 60)
        timers.append(deadlines._timer)
        deadlines.remove(request_id)
    deadlines.close()

    assert (len(set(map(id, timers))), deadlines._timer) == (1, None)
