"""A host whose session created others and runs a sub-agent. Prints their ids once all are at work; then it is killed."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import settings
from holdfast.agent.agent import TurnContext
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host import created_sessions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from tests.host.test_team import Scripted


async def main(home: str, folder: str) -> None:
    created_sessions.CREATION_SECONDS = 0.0
    at_work, created = asyncio.Semaphore(0), list[str]()

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.sender or turn.origin.agent:
            await turn.reply("Half of the work is done.")
            at_work.release()
            await asyncio.Event().wait()
        for detached in (False, True):
            child = await turn.call(
                "team.create_session", {"title": "x", "initial_message": "Work.", "detached": detached}
            )
            created.append(child.data["session_id"])
        await turn.call("agents.delegate", {"task": "Work."})

    loaded = settings.load(Path(home, "config.toml"), {"HOLDFAST_DATA_DIR": f"{home}/data"})
    async with Host(settings=loaded, agent=Scripted(answer)) as host:
        parent = await host.open(OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO))
        await parent.wait_ready()
        prompting = asyncio.ensure_future(parent.prompt("Go."))
        for _ in range(3):
            await at_work.acquire()
        await parent.record.flush()
        for session_id in created:
            session = host.find_live(session_id)
            assert session is not None
            await session.record.flush()
        print(parent.context.session_id, *created, flush=True)
        await prompting


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
