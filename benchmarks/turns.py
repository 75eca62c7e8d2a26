"""Measures clients side by side: all are connected at once, and take short turns."""

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from benchmarks.wire import TEXT, Call, calls_for

ROUNDS, TURNS, TURN_SECONDS = 3, 9, 0.05

Turn = Callable[[float], Awaitable[float]]
"""Makes calls for this many seconds, at least one; returns their p50 in ms."""

Client = Callable[[], AbstractAsyncContextManager[Turn]]


async def side_by_side(
    clients: dict[str, Client], *, rounds: int = ROUNDS, turns: int = TURNS
) -> dict[str, float]:
    """The p50 of each client in ms, in the fastest of its turns.

    All clients reconnect in each round, because where a process is placed affects its figures for as long as it runs.
    """
    best: dict[str, float] = {}
    for _ in range(rounds):
        async with AsyncExitStack() as stack:
            connected = {name: await stack.enter_async_context(client()) for name, client in clients.items()}
            for number in range(turns + 1):
                for name, turn in connected.items():
                    p50 = await turn(TURN_SECONDS)
                    if number:  # the first turn warms up
                        best[name] = min(p50, best.get(name, p50))
    return best


def local_client(connect: Callable[[], AbstractAsyncContextManager[Call]]) -> Client:
    """A client that makes its calls in this process."""

    @asynccontextmanager
    async def client() -> AsyncIterator[Turn]:
        async with connect() as call:
            assert await call() == TEXT

            async def turn(seconds: float) -> float:
                return statistics.median(await calls_for(seconds, call)) * 1000

            yield turn

    return client
