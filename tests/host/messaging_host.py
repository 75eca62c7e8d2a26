"""A host whose sessions, of which the first is sandboxed, send messages without end, until it is killed. Prints the ids of its sessions, then of each message."""

import asyncio
import random
import sys
from dataclasses import replace
from pathlib import Path

from holdfast import settings
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from tests.host.test_team import Scripted


async def main(home: str, folder: str, count: int) -> None:
    loaded = settings.load(Path(home, "config.toml"), {"HOLDFAST_DATA_DIR": f"{home}/data"})
    async with Host(settings=loaded, agent=Scripted()) as host:
        opening = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
        sandboxed = replace(opening, trust=Trust.SANDBOXED)
        sessions = [await host.open(opening if n else sandboxed) for n in range(count)]
        print(*(session.context.session_id for session in sessions), flush=True)
        targets = (await asyncio.to_thread(sys.stdin.readline)).split()
        while True:
            sender, target = random.choice(sessions), random.choice(targets)
            sent = await sender.call("team.send_message", {"session_id": target, "text": "hello"})
            if sent.ok:
                print(sent.data["message_id"], flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
