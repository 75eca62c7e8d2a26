"""A host for tests, with the given servers and without the configuration of this machine."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast import settings
from holdfast.agent.agent import Agent
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.async_block import async_block
from holdfast.model.errors import HoldfastError
from holdfast.store.memory import MemoryStore
from holdfast.testing.fake_server import FakeServer
from holdfast.toolkit.toolbox import Toolbox


@async_block("async with host_of(…) as host:")
async def host_of(
    *boxes: Toolbox | FakeServer, agent: Agent | None = None, **servers: Any
) -> AsyncIterator[Host]:
    """Open a host with these servers: toolboxes and fake servers by their names, others by keyword.

    `async with host_of(box, other=fake) as host, host.session() as session: …`

    The store is in memory, and the settings are the defaults. The only config file that is read is `.mcp.json` in the session's
    folder. Its servers are refused, because they are not approved.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        config = Path(folder) / "config.toml"
        config.touch()
        environ = {
            "HOLDFAST_DATA_DIR": str(Path(folder) / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(Path(folder) / "user.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(Path(folder) / "host.json"),
        }
        named = {**{_name_of(box): box for box in boxes}, **servers}
        loaded = settings.load(config, environ)
        async with Host(settings=loaded, store=MemoryStore(), servers=named, agent=agent) as host:
            yield host


def _name_of(box: object) -> str:
    if isinstance(box, Toolbox | FakeServer):
        return box.name
    raise HoldfastError(
        codes.BAD_ARGUMENT,
        f"host_of takes a Toolbox or a FakeServer, not a value of the type {type(box).__name__}. "
        "Give other servers by keyword: host_of(name={…}).",
    )
