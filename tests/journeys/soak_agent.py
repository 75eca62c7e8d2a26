"""`holdfast acp` with an agent that counts forever; with `--publish-first`, events are published before they are stored."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from holdfast import log_output, settings
from holdfast.acp.serve import SessionDefaults, serve
from holdfast.agent.agent import TurnContext
from holdfast.model.event import Event, StopReason
from holdfast.model.json import JsonObject
from holdfast.session.subscription import EventFeed
from holdfast.store.appender import Appender
from holdfast.store.pending_event import PendingEvent
from holdfast.store.types import StoredEvent


class Counter:
    commands = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        number = 0
        while True:
            # No secret begins with a blank, so no end of a chunk is delayed.
            await turn.reply(f"{blocks[0]['text']}:{number} ")
            number += 1


def publish_first() -> None:
    """Publish each event before it is stored."""
    append = Appender.append

    async def publish_then_append(self: Appender, event: Event, **more: Any) -> PendingEvent:
        feed = self._feed
        assert isinstance(feed, EventFeed)
        feed.publish([StoredEvent(seq=feed.last + 1, at_microseconds=0, event=event)], [0])
        return await append(self, event, **more)

    Appender.append = publish_then_append


if __name__ == "__main__":
    if "--publish-first" in sys.argv:
        publish_first()
    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    asyncio.run(serve(loaded, SessionDefaults(), Counter))
