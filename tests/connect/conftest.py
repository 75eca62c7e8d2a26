"""A host on a store of its own, and processes that can be looked up."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.connect.terms import Terms
from holdfast.host import Host
from holdfast.store.memory import MemoryStore
from tests.connect import server

HostFactory = Callable[..., Host]


def counter(*flags: str, **more: Any) -> dict[str, Any]:
    """The entry of a counting server."""
    root = str(Path(__file__).parents[2])
    return {
        "command": sys.executable,
        "args": ["-m", server.__name__, *flags],
        "env": {"PYTHONPATH": root, "tests_marker": str(os.getpid()), **more.pop("env", {})},
        **more,
    }


@pytest.fixture
def make_host(tmp_path: Path) -> HostFactory:
    """Makes a host with these servers, a memory store, and nothing of this machine's configuration."""

    def make(servers: dict[str, Any], *, terms: Terms | None = None, **variables: str) -> Host:
        environ = {
            "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "mcp.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
            **variables,
        }
        loaded = settings.load(_empty(tmp_path), environ)
        return Host(
            settings=loaded, servers=servers, store=MemoryStore(), terms=terms or Terms(end_seconds=0.5)
        )

    return make


def _empty(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.touch()
    return file
