"""One timer for all answers that are waited for."""

import asyncio

import pytest

from holdfast.wire.deadlines import Deadlines
from holdfast.wire.frame import Id

pytestmark = pytest.mark.anyio


async def test_each_expires_at_its_own_time_and_what_was_dropped_never_does():
    expired: list[Id] = []
    over = asyncio.Event()

    def expire(identity: Id) -> None:
        expired.append(identity)
        if identity == "last":
            over.set()

    deadlines = Deadlines(asyncio.get_running_loop(), expire)
    for identity, seconds in (("last", 0.06), ("first", 0.02), ("dropped", 0.03), ("second", 0.04)):
        deadlines.add(identity, seconds)
    deadlines.drop("dropped")
    await asyncio.wait_for(over.wait(), 5)

    assert expired == ["first", "second", "last"]


async def test_a_call_that_was_answered_leaves_the_alarm_for_the_next():
    deadlines = Deadlines(asyncio.get_running_loop(), lambda identity: None)
    alarms: list[object] = []
    for identity in range(3):
        deadlines.add(identity, 60)
        alarms.append(deadlines._alarm)
        deadlines.drop(identity)
    deadlines.close()

    assert (len(set(map(id, alarms))), deadlines._alarm) == (1, None)
