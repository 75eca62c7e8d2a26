"""`holdfast acp` with an agent that counts without end; with `--early`, what it says is told before it is stored."""

import asyncio
import sys
from collections.abc import Sequence

from holdfast import settings, telemetry
from holdfast.acp.serve import serve
from holdfast.acp.terms import Terms
from holdfast.agent.agent import Desk
from holdfast.model.event import Event, StopReason
from holdfast.model.json import JsonObject
from holdfast.session.stream import Stream
from holdfast.store.appender import Also, Ticket


class Counter:
    commands = ()

    async def turn(self, blocks: Sequence[JsonObject], desk: Desk) -> StopReason:
        number = 0
        while True:
            await desk.reply(f"{blocks[0]['text']}:{number}")
            number += 1


def tell_early() -> None:
    """Turn the stream's order round."""
    store_then_tell = Stream.keep

    async def tell_then_store(
        self: Stream, event: Event, also: Also | None = None, *, after: Ticket | None = None
    ) -> Ticket:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener([event])
        ticket = await store_then_tell(self, event, also, after=after)
        self._listener = listener
        return ticket

    Stream.keep = tell_then_store


if __name__ == "__main__":
    if "--early" in sys.argv:
        tell_early()
    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    asyncio.run(serve(loaded, Terms(), Counter))
