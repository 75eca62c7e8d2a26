"""Hosts and server entries for tests of links."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
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
    """The same entry, marked for sandboxed use, with the program's folder readable."""
    return {**entry, "trust_level": "sandboxed", "readable": [str(Path(__file__).parents[2])]}


def hostile_entry(kind: str, *size: int) -> dict[str, Any]:
    """The entry of a server that does this attack."""
    script = str(Path(__file__).with_name("hostile_server.py"))
    return {
        "command": sys.executable,
        "args": ["-I", "-S", script, kind, *map(str, size)],
        "env": {"tests_marker": str(os.getpid())},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for sessions, outside the host's data folder."""
    path = tmp_path.resolve() / "folder"
    path.mkdir()
    return path


@pytest.fixture
def make_host(tmp_path: Path) -> HostFactory:
    """Makes a host with these servers and an in-memory store (unless `durable`). It ignores this machine's config."""

    def make(
        servers: dict[str, Any],
        *,
        options: ConnectOptions | None = None,
        durable: bool = False,
        **variables: str,
    ) -> Host:
        config = tmp_path / "config"
        config.mkdir(exist_ok=True)
        environ = {
            "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(config / "mcp.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(config / "host.json"),
            **variables,
        }
        loaded = settings.load(_empty_config(config), environ)
        return Host(
            settings=loaded,
            servers=servers,
            # A store may run a write again: the functions of all our code must allow that.
            store=None if durable else MemoryStore(run_twice=True),
            connect_options=options or ConnectOptions(end_seconds=0.5),
        )

    return make


def _empty_config(folder: Path) -> Path:
    file = folder / "config.toml"
    file.touch()
    return file
