"""A turn that was asked for. Await it for its result, or iterate over its events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from holdfast.model import codes
from holdfast.model.coroutine_wrapper import CoroutineWrapper
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Prompted, TurnEnded
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.subscription import Subscription
from holdfast.session.turns import TurnResult
from holdfast.store.types import StoredEvent


class PromptedTurn(CoroutineWrapper[TurnResult]):
    """One turn: `await` it for its result, or use `async for` to get its events as they are stored.

    The turn starts when it is awaited or iterated over. Leaving the loop early cancels the turn. A `PromptedTurn` can be used once.
    """

    def __init__(
        self, answer: Coroutine[Any, Any, TurnResult], subscribe: Callable[[], Subscription], message_id: str
    ) -> None:
        super().__init__(answer)
        self._subscribe = subscribe
        self._message_id = message_id
        self._result: TurnResult | None = None

    @property
    def result(self) -> TurnResult:
        """How the turn ended. Raise unless a loop over all of its events has ended."""
        if self._result is None:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The turn has no result: `turn.result` is set after a loop over all of its events. Leaving the loop early cancels "
                "the turn. To get the result without a loop, write: result = await session.prompt(…)",
            )
        return self._result

    async def __aiter__(self) -> AsyncIterator[StoredEvent]:
        events = self._subscribe()
        turn = asyncio.ensure_future(self._coroutine)
        # If the turn raises an error, no event ends the loop.
        turn.add_done_callback(lambda _: events.close() if _failed(turn) else None)
        has_begun = False
        try:
            async for stored in events:
                # Events of the turns before this one are skipped.
                has_begun = has_begun or (
                    isinstance(stored.event, Prompted) and stored.event.message_id == self._message_id
                )
                if has_begun:
                    yield stored
                # The result says which event is the last. `stored` may also be the end of an earlier turn.
                if turn.done() or _ends_turn(stored):
                    self._result = await turn
                    if stored.seq >= self._result.last_seq:
                        return
            self._result = await turn
        finally:
            events.close()
            if not turn.done():
                turn.cancel()
                await run_to_completion(wait_done(turn))


def _ends_turn(stored: StoredEvent) -> bool:
    return isinstance(stored.event, TurnEnded)


def _failed(turn: "asyncio.Future[TurnResult]") -> bool:
    return turn.cancelled() or turn.exception() is not None
