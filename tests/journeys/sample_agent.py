"""`holdfast acp` with an agent that uses every part of its turn: thoughts, plans, calls, replies and usage."""

import asyncio
from collections.abc import Sequence

from holdfast import log_output, settings
from holdfast.acp.serve import SessionDefaults, serve
from holdfast.agent.agent import TurnContext
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject


class SampleAgent:
    commands = ()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        text = str(blocks[0].get("text", ""))
        if text.startswith("/"):
            return await SlashCommandAgent().run_turn(blocks, turn)
        if text == "crash":
            raise RuntimeError("an internal secret")
        await turn.think("Let me see")
        await turn.plan([{"content": "echo", "priority": "high", "status": "pending"}])
        await asyncio.gather(*(turn.call("tools.echo", {"text": str(n)}) for n in range(3)))
        await turn.plan([{"content": "echo", "priority": "high", "status": "completed"}])
        await turn.reply("You said: ")
        await turn.reply(text)
        turn.report_usage({"used": 10, "size": 1000, "cost": {"amount": 0.5, "currency": "EUR"}})
        return StopReason.END_TURN


if __name__ == "__main__":
    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    asyncio.run(serve(loaded, SessionDefaults(), SampleAgent))
