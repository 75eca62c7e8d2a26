"""A host of its own that sends one prompt: `python -m … DATA PROJECT BASE_URL MODEL [SESSION]`. Prints the session's id first.

The session has a tool that makes the file `running` in the project, and never returns.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from holdfast import Host, settings
from holdfast.toolkit import Toolbox


async def main(data: str, project: str, base_url: str, model: str, stored: str = "") -> None:
    loaded = settings.load(environ={})
    configured = replace(
        loaded, data_dir=Path(data), model=replace(loaded.model, name=model, base_url=base_url)
    )
    box = Toolbox("slow", version="1")

    @box.tool(operation="query")
    async def wait() -> str:
        """Wait."""
        (Path(project) / "running").touch()
        await asyncio.Event().wait()
        return ""

    async with Host(settings=configured) as host:
        servers = {"slow": box}
        opening = (
            await host.reopen(stored, servers=servers)
            if stored
            else host.session(cwd=project, servers=servers)
        )
        async with opening as session:
            print(session.context.session_id, flush=True)
            await session.prompt("Read it")


asyncio.run(main(*sys.argv[1:]))
