"""A `holdfast up` process, and its JSON lines."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.commands import run_holdfast
from tests.gateway.running import COUNTER

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def environment(home: Path) -> dict[str, str]:
    """A home without any configuration."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
    }


def add_counter(home: Path) -> None:
    """Write the counter server into the user's own list."""
    folder = home / "config" / "holdfast"
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"command": sys.executable, "args": [str(COUNTER)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"counter": entry}}))


def run(home: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a `holdfast` command in this home."""
    done = run_holdfast(*words, cwd=home, env=environment(home))
    if check:
        done.check_returncode()
    return done


class UpProcess:
    """A running `holdfast up --json`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""

    async def event(self, kind: str) -> dict[str, Any]:
        """The next line of this kind."""
        assert self.process.stdout is not None
        while line := await asyncio.wait_for(self.process.stdout.readline(), 60):
            event = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"`holdfast up` ended before the event {kind}.")


@asynccontextmanager
async def running_up(home: Path, cwd: Path, *options: str) -> AsyncIterator[UpProcess]:
    """A `holdfast up` on a free port. It is killed at the end of the block, if it still runs."""
    process = await asyncio.create_subprocess_exec(
        HOLDFAST,
        "up",
        "--port",
        "0",
        "--json",
        *options,
        env=environment(home),
        cwd=cwd,
        stdout=subprocess.PIPE,
    )
    up = UpProcess(process)
    try:
        up.url = (await up.event("ready"))["url"]
        yield up
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
