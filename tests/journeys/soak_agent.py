"""`holdfast acp` with an agent that counts forever; with `--publish-first`, events are published before they are stored."""

import asyncio
import sys
from collections.abc import Sequence

from holdfast import settings, telemetry
from holdfast.acp.serve import SessionDefaults, serve
from holdfast.agent.agent import TurnContext
from holdfast.model.event import Event, StopReason
from holdfast.model.json import JsonObject
from holdfast.session.event_stream import EventStream
from holdfast.store.appender import OnAppend, PendingEvent


class Counter:
    commands = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        number = 0
        while True:
            await turn.reply(f"{blocks[0]['text']}:{number}")
            number += 1


def publish_first() -> None:
    """Reverse the order of the event stream."""
    append = EventStream.append

    async def publish_then_append(
        self: EventStream,
        event: Event,
        on_append: OnAppend | None = None,
        *,
        depends_on: PendingEvent | None = None,
    ) -> PendingEvent:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener([event])
        pending = await append(self, event, on_append, depends_on=depends_on)
        self._listener = listener
        return pending

    EventStream.append = publish_then_append


if __name__ == "__main__":
    if "--publish-first" in sys.argv:
        publish_first()
    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    asyncio.run(serve(loaded, SessionDefaults(), Counter))
