"""A process that has a session open: prints its id, then prompts for each line of its input."""

import asyncio
import sys

from holdfast import settings
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.permission import Mode


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with Host(settings=settings.load()) as host:
        session = await host.open(OpenOptions(cwd=sys.argv[1], mode=Mode.ASK))
        await session.wait_for_servers()
        print(session.context.session_id, flush=True)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().strip():
            result = await session.prompt([{"type": "text", "text": line}])
            print(result.reason, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
