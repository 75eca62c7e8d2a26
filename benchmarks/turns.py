"""Clients side by side: all connected at once, and a little of each in turn."""

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from benchmarks.wire import TEXT, Call, calls_for

ROUNDS, TURNS, TURN_SECONDS = 3, 9, 0.05

Turn = Callable[[float], Awaitable[float]]
"""Calls again and again for so many seconds, at least once; the p50 of these calls in ms."""

Client = Callable[[], AbstractAsyncContextManager[Turn]]


async def side_by_side(
    clients: dict[str, Client], *, rounds: int = ROUNDS, turns: int = TURNS
) -> dict[str, float]:
    """The p50 of each in ms, in the calmest of all its turns.

    In each round all connect anew: where the machine happens to put a process moves its figure as long as it lives.
    """
    best: dict[str, float] = {}
    for _ in range(rounds):
        async with AsyncExitStack() as stack:
            connected = {name: await stack.enter_async_context(client()) for name, client in clients.items()}
            for number in range(turns + 1):
                for name, turn in connected.items():
                    p50 = await turn(TURN_SECONDS)
                    if number:  # the first one warms up
                        best[name] = min(p50, best.get(name, p50))
    return best


def here(connected: Callable[[], AbstractAsyncContextManager[Call]]) -> Client:
    """A client that makes its calls in this process."""

    @asynccontextmanager
    async def client() -> AsyncIterator[Turn]:
        async with connected() as call:
            assert await call() == TEXT

            async def turn(seconds: float) -> float:
                return statistics.median(await calls_for(seconds, call)) * 1000

            yield turn

    return client
