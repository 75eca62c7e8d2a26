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


def for_sandboxed(entry: dict[str, Any]) -> dict[str, Any]:
    """The same server, marked for sandboxed use; what it is made of may be read."""
    return {**entry, "trust_level": "sandboxed", "readable": [str(Path(__file__).parents[2])]}


def hostile(kind: str, *size: int) -> dict[str, Any]:
    """The entry of a server that means harm in this way."""
    script = str(Path(__file__).with_name("hostile.py"))
    return {
        "command": sys.executable,
        "args": ["-I", "-S", script, kind, *map(str, size)],
        "env": {"tests_marker": str(os.getpid())},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for sessions, beside what the host keeps."""
    path = tmp_path.resolve() / "folder"
    path.mkdir()
    return path


@pytest.fixture
def make_host(tmp_path: Path) -> HostFactory:
    """Makes a host with these servers, a store in memory (or `durable`), and nothing of this machine's configuration."""

    def make(
        servers: dict[str, Any], *, terms: Terms | None = None, durable: bool = False, **variables: str
    ) -> Host:
        own = tmp_path / "own"
        own.mkdir(exist_ok=True)
        environ = {
            "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(own / "mcp.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(own / "host.json"),
            **variables,
        }
        loaded = settings.load(_empty(own), environ)
        return Host(
            settings=loaded,
            servers=servers,
            store=None if durable else MemoryStore(),
            terms=terms or Terms(end_seconds=0.5),
        )

    return make


def _empty(folder: Path) -> Path:
    file = folder / "config.toml"
    file.touch()
    return file
