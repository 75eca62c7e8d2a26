"""An event that takes little memory behaves like that of asyncio."""

import asyncio
import sys

import pytest

from holdfast.model.light_event import LightEvent

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", [asyncio.Event, LightEvent])


@KINDS
async def test_every_task_that_waits_is_woken_once_it_is_set(kind: type[asyncio.Event]) -> None:
    event = kind()
    tasks = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    before = [task.done() for task in tasks]
    event.set()
    event.clear()

    assert (before, await asyncio.gather(*tasks), event.is_set()) == ([False] * 3, [True] * 3, False)


@KINDS
async def test_cancelled_task_does_not_affect_the_others(kind: type[asyncio.Event]) -> None:
    event = kind()
    impatient, patient = [asyncio.create_task(event.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    event.set()

    assert (await patient, await event.wait(), impatient.cancelled()) == (True, True, True)


async def test_future_is_done_once_the_event_is_set() -> None:
    event = LightEvent()
    early, forgotten = event.when_set(), event.when_set()
    event.forget(forgotten)
    event.forget(forgotten)
    event.set()

    assert (early.done(), forgotten.done(), event.when_set().done()) == (True, False, True)


def test_idle_event_takes_a_fraction_of_the_memory() -> None:
    def size(event: asyncio.Event) -> int:
        return sum(map(sys.getsizeof, [event, vars(event), *vars(event).values()]))

    assert size(LightEvent()) < size(asyncio.Event()) / 2
