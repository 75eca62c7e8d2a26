"""A host of its own that sends one prompt: `python -m … DATA PROJECT BASE_URL MODEL`. Prints the session's id first."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from holdfast import Host, settings


async def main(data: str, project: str, base_url: str, model: str) -> None:
    loaded = settings.load(environ={})
    configured = replace(
        loaded, data_dir=Path(data), model=replace(loaded.model, name=model, base_url=base_url)
    )
    async with Host(settings=configured) as host, host.session(cwd=project) as session:
        print(session.context.session_id, flush=True)
        await session.prompt("Read it")


asyncio.run(main(*sys.argv[1:]))
