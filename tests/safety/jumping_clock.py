"""A gateway with open sessions, in a process whose clock jumps several times."""

import asyncio
import json
import os
import struct
import sys
import time
from pathlib import Path

from holdfast.host.open_options import OpenOptions
from tests.gateway.running import Client, running_gateway

DAY = 86_400

JUMPS = (0, -DAY, -3650 * DAY, 1800, 3650 * DAY, 0)


def set_clock(offset: int) -> None:
    """Let the clock of this process differ from the machine's by this many seconds."""
    with Path(os.environ["CLOCK_OFFSET"]).open("r+b") as file:
        file.write(struct.pack("l", offset))


async def main(folder: Path) -> None:
    began = time.time()
    found: list[object] = []
    async with running_gateway(folder) as running:
        token = running.token(expires_at=began + 3600)
        session = await running.host.open(OpenOptions(cwd=folder / "project"))
        await session.wait_ready_and_store()
        for jump in JUMPS:
            set_clock(jump)
            new = await running.host.open(OpenOptions(cwd=folder / "project"))
            await new.wait_ready_and_store()
            client = Client(running.url, token)
            answer = await client.initialize()
            await client.http.aclose()
            calls = [(await each.call("counter.who")).ok for each in (session, new)]
            await new.close()
            verdict = await running.host.verify_audit()
            found.append([round((time.time() - began) / DAY), calls, answer.status_code, verdict.problem])
        await session.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
