"""Ends a request to a model if its answer makes no progress for too long, or if the turn has no time left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.agent.model import failures
from holdfast.agent.model.transport import Exchange
from holdfast.model.errors import HoldfastError


@asynccontextmanager
async def limit_time(
    exchange: Exchange, seconds_left: float, timeout_error: HoldfastError | None = None
) -> AsyncIterator[None]:
    """Raise an error if the exchange makes no progress for `idle_seconds`, or takes longer than `seconds_left`.

    In the second case, raise `timeout_error`. By default, that error says that the turn has no time left.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + max(0.0, seconds_left)
    idle = exchange.limits.idle_seconds
    timer: asyncio.TimerHandle | None = None
    scope = asyncio.timeout(None)

    def check() -> None:
        # One timer for the whole request. Progress only updates `last_progress`; the timer reads it when it fires.
        nonlocal timer
        due = min(exchange.last_progress + idle, end)
        if loop.time() >= due:
            scope.reschedule(loop.time())
        else:
            timer = loop.call_at(due, check)

    try:
        async with scope:
            check()
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        if loop.time() >= end:
            raise timeout_error or failures.turn_timed_out(exchange.limits.turn_seconds) from None
        raise failures.no_progress(idle) from None
    finally:
        if timer is not None:
            timer.cancel()
