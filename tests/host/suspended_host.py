"""A host in a process of its own, whose lease ends soon after the process is suspended.

It opens a session and prints its id. For each line on its standard input, it calls the tool `mark` with that line, which
creates a file of that name, and prints the outcome.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from holdfast import settings
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.store.open_store import open_store
from holdfast.store.owner import this_process
from holdfast.store.types import Hold

LEASE_SECONDS = 0.5


async def main(home: Path, folder: Path) -> None:
    # The lease names another machine, so that the other process cannot check whether this process is alive.
    owner = replace(this_process(), machine="elsewhere")
    loaded = settings.load(home / "config.toml", {**os.environ, "HOLDFAST_DATA_DIR": str(home / "data")})
    server: JsonObject = {
        "command": sys.executable,
        "args": ["-m", "tests.host.marking_server"],
        "env": {"PYTHONPATH": str(Path(__file__).parents[2])},
        "cwd": ".",
    }
    async with (
        open_store(home / "data" / "holdfast.db", lease_seconds=LEASE_SECONDS, owner=owner) as store,
        Host(settings=loaded, servers={"marks": server}, store=store) as host,
        host.session(cwd=folder) as session,
    ):
        _print(session.context.session_id)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            try:
                result = await session.call("marks.mark", {"name": name})
                _print(result.outcome)
            except HoldfastError as error:
                _print(error.code.name)


def _accept_every_epoch(hold: Hold, current: int | None) -> None:
    """The control: stale holds write, too."""


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    if "--without-epochs" in sys.argv:
        from holdfast.store.sqlite import write_tx

        write_tx.check_epoch = _accept_every_epoch
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
