"""A process that has a session open: prints its id, then prompts for each line of its input.

With `--stream`, each line is a number: the agent replies with this many pieces. With `--impatient`, a process that connects
must attach soon.
"""

import asyncio
import sys
from collections.abc import Sequence

from holdfast import settings
from holdfast.agent.agent import Command, TurnContext
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.host.remote import listener
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode

PIECE = "x" * 3000


class Streamer:
    commands: tuple[Command, ...] = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        for number in range(int(str(blocks[0]["text"]))):
            await turn.reply(f"{number} {PIECE}")
        return StopReason.END_TURN


async def main() -> None:
    loop = asyncio.get_running_loop()
    if "--impatient" in sys.argv:
        listener._ATTACH_SECONDS = 0.5  # pyright: ignore[reportPrivateUsage]
    agent = Streamer() if "--stream" in sys.argv else None
    async with Host(settings=settings.load(), agent=agent) as host:
        session = await host.open(OpenOptions(cwd=sys.argv[1], mode=Mode.ASK))
        await session.wait_ready_and_store()
        print(session.context.session_id, flush=True)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().strip():
            result = await session.prompt([{"type": "text", "text": line}])
            print(result.reason, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
