"""A process that has a session open, for tests that attach to it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.host.data_folder import DATABASE_FILE
from holdfast.model.ids import SessionId
from holdfast.store.open_store import open_store
from holdfast.store.types import Lease


@dataclass(frozen=True)
class Owner:
    """A process that has a session open."""

    process: asyncio.subprocess.Process
    data: Path
    lease: Lease
    environ: dict[str, str]
    """The environment for other processes with the same data."""

    async def prompt(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        await self.process.stdin.drain()

    async def wait_answered(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def open_owner(tmp_path: Path, *flags: str) -> AsyncIterator[Owner]:
    """Start `owner.py`; it has a session open in a folder of its own."""
    data, folder = tmp_path / "data", tmp_path / "project"
    folder.mkdir()
    environ = os.environ | {
        "HOLDFAST_DATA_DIR": str(data),
        "HOLDFAST_SESSIONS_MAX_MEGABYTES": "0",  # a test by hand stores more
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("owner.py")),
        str(folder),
        *flags,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ,
    )
    assert process.stdout is not None
    session_id = SessionId((await process.stdout.readline()).decode().strip())
    async with open_store(data / DATABASE_FILE) as store:
        lease = await store.read(lambda tx: tx.lease(session_id))
    assert lease is not None
    try:
        yield Owner(process, data, lease, environ)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
