"""`holdfast acp` with an agent that streams as many chunks as the prompt says."""

import asyncio
from collections.abc import Sequence

from holdfast import settings
from holdfast.acp.serve import SessionDefaults, serve
from holdfast.agent.agent import TurnContext
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject

CHUNK = "x" * 192


class Streamer:
    commands = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        for _ in range(int(str(blocks[0]["text"]))):
            await turn.reply(CHUNK)
        return StopReason.END_TURN


if __name__ == "__main__":
    asyncio.run(serve(settings.load(), SessionDefaults(), Streamer))
