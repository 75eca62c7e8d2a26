"""`holdfast acp` with an agent that uses all it is lent: it thinks, plans, calls, speaks, and tells what it used."""

import asyncio
from collections.abc import Sequence

from holdfast import settings, telemetry
from holdfast.acp.serve import serve
from holdfast.acp.terms import Terms
from holdfast.agent.agent import Desk
from holdfast.agent.manual import Manual
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject


class Thinker:
    commands = ()

    async def turn(self, blocks: Sequence[JsonObject], desk: Desk) -> StopReason:
        text = str(blocks[0].get("text", ""))
        if text.startswith("/"):
            return await Manual().turn(blocks, desk)
        if text == "crash":
            raise RuntimeError("the secret of the house")
        await desk.think("Let me see")
        await desk.plan([{"content": "echo", "priority": "high", "status": "pending"}])
        await asyncio.gather(*(desk.call("tools.echo", {"text": str(n)}) for n in range(3)))
        await desk.plan([{"content": "echo", "priority": "high", "status": "completed"}])
        await desk.reply("You said: ")
        await desk.reply(text)
        desk.used({"used": 10, "size": 1000, "cost": {"amount": 0.5, "currency": "EUR"}})
        return StopReason.END_TURN


if __name__ == "__main__":
    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    asyncio.run(serve(loaded, Terms(), Thinker))
