"""Tasks of one owner take turns on the event loop."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

import pytest

from holdfast.wire.task_turns import TaskTurns, current_turns, run_in_current_turns, run_in_turns

pytestmark = pytest.mark.anyio

T = TypeVar("T")


def spin(seconds: float = 0.0005) -> None:
    """Use the event loop for a while."""
    until = monotonic() + seconds
    while monotonic() < until:
        pass


async def test_work_in_turns_returns_raises_and_is_cancelled_as_without_turns():
    turns = TaskTurns()
    log: list[str] = []

    async def work(ending: str) -> str:
        try:
            async with asyncio.timeout(60):
                spin(0.002)
                await asyncio.sleep(0)
                if ending == "raises":
                    raise KeyError(ending)
                if ending == "is cancelled":
                    await asyncio.Event().wait()
                return ending
        finally:
            log.append(ending)

    tasks = {
        ending: asyncio.ensure_future(_started(work(ending), turns))
        for ending in ("returns", "raises", "is cancelled")
    }
    await asyncio.wait([tasks["returns"], tasks["raises"]])
    tasks["is cancelled"].cancel()
    await asyncio.wait([*tasks.values()])

    assert tasks["returns"].result() == "returns"
    assert isinstance(tasks["raises"].exception(), KeyError)
    assert tasks["is cancelled"].cancelled()
    assert sorted(log) == ["is cancelled", "raises", "returns"]


async def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_ends_without_one():
    turns = TaskTurns()
    ran: list[str] = []

    async def work() -> None:
        try:
            ran.append("began")
        finally:
            ran.append("ended")

    task = asyncio.ensure_future(_started(work(), turns))
    turns.charge(60.0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), ran) == (True, [])
    await asyncio.wait_for(_started(work(), turns), 60)
    assert ran == ["began", "ended"]


async def test_a_task_of_a_request_shares_its_turns():
    turns = TaskTurns()
    current_turns.set(lambda: turns)
    order: list[str] = []

    async def work() -> None:
        order.append("the request's task")

    task = asyncio.create_task(run_in_current_turns(work()))
    turns.charge(60.0)
    while not task.done():
        order.append("another task")
        await asyncio.sleep(0)

    assert order[:2] == ["another task", "another task"]  # without turns, the second would be the request's


async def _started(work: Coroutine[Any, Any, T], turns: TaskTurns) -> T:
    return await run_in_turns(work, lambda: turns)
