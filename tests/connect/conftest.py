"""Hosts and server entries for tests of links."""

import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.session.session import Session
from holdfast.store.memory import MemoryStore
from tests.connect import counter_server

HostFactory = Callable[..., Host]


def counter_entry(*flags: str, **more: Any) -> dict[str, Any]:
    """The entry of the counter server."""
    root = str(Path(__file__).parents[2])
    return {
        "command": sys.executable,
        "args": ["-m", counter_server.__name__, *flags],
        "env": {"PYTHONPATH": root, "tests_marker": str(os.getpid()), **more.pop("env", {})},
        **more,
    }


def for_sandboxed(entry: dict[str, Any]) -> dict[str, Any]:
    """A copy of the entry, marked for sandboxed use, with the program's folder readable."""
    return {**entry, "trust_level": "sandboxed", "readable": [str(Path(__file__).parents[2])]}


def hostile_entry(kind: str, *size: int) -> dict[str, Any]:
    """The entry of a server that does this attack."""
    script = str(Path(__file__).with_name("hostile_server.py"))
    return {
        "command": sys.executable,
        "args": ["-I", "-S", script, kind, *map(str, size)],
        "env": {"tests_marker": str(os.getpid())},
    }


@asynccontextmanager
async def open_for_block(host: Host, options: OpenOptions) -> AsyncIterator[Session]:
    """A session with options that only front ends use, such as the servers that a client brings."""
    session = await host.open(options)
    try:
        await session.wait_ready_and_store()
        yield session
    finally:
        await session.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for sessions, outside the host's data folder."""
    path = tmp_path.resolve() / "folder"
    path.mkdir()
    return path


@pytest.fixture
def make_host(tmp_path: Path) -> HostFactory:
    """Makes a host with these servers, from the operator's list, and an in-memory store (unless `durable`).

    It ignores this machine's config.
    """

    def make(
        servers: dict[str, Any],
        *,
        options: ConnectOptions | None = None,
        durable: bool = False,
        **variables: str,
    ) -> Host:
        config = tmp_path / "config"
        config.mkdir(exist_ok=True)
        names = hashlib.sha256("\0".join(servers).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        host_file = config / f"host-{names}.json"
        host_file.write_text(json.dumps({"mcpServers": servers}))
        environ = {
            "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(config / "mcp.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(host_file),
            "HOLDFAST_STAGE_ENABLED": "false",  # the same tools with and without an installed browser
            **variables,
        }
        loaded = settings.load(_empty_config(config), environ)
        return Host(
            settings=loaded,
            # A store may run a write again, so the functions of all our code must be repeatable.
            store=None if durable else MemoryStore(run_twice=True),
            connect_options=options or ConnectOptions(end_seconds=0.5),
        )

    return make


def _empty_config(folder: Path) -> Path:
    file = folder / "config.toml"
    file.touch()
    return file
