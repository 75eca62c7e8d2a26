"""Start third-party programs as real processes and connect our peer to them."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import IO

import pytest

from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.messages import Notification
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parent.parent / "peers" / "node_modules"
ME = OwnInfo(implementation=Implementation("holdfast-tests", "1"))
PATIENCE = 5.0


def python(script: str) -> list[str]:
    """The command of a Python script beside this file."""
    return [sys.executable, str(HERE / script)]


def node(script: str | Path, *arguments: str) -> list[str]:
    """The command of a Node script: beside this file, or of a package (`mcp-server-memory`) by its path."""
    program = PACKAGES / ".bin" / "node"
    if not program.exists():
        pytest.fail(f"The Node peers are missing ({program}): run `make setup`.", pytrace=False)
    return [str(program), str(HERE / script), *arguments]


def node_server(name: str, *arguments: str) -> list[str]:
    """The command of an MCP server from npm."""
    return node(PACKAGES / ".bin" / name, *arguments)


def ignore(notification: Notification) -> None:
    """Ignore every notification."""


@asynccontextmanager
async def spawned(
    command: list[str], *, notice: Callable[[Notification], None] = ignore, said: Path | None = None
) -> AsyncIterator[Peer]:
    """A peer connected to a new process; with `said`, a `tee` in between records what we send."""
    with ExitStack() as ends:
        if said is None:
            process = _start(command, ends)
            target = process.stdin
            ends.callback(process.kill)
        else:
            tee = _start(["tee", str(said)], ends)
            process = _start(command, ends, reads=tee.stdout)
            target = tee.stdin
            ends.callback(process.kill)
            ends.callback(tee.wait, PATIENCE)  # it ends when our side closes, after writing everything
        assert process.stdout is not None
        assert target is not None
        async with connect_pipes(Peer(on_notification=notice), process.stdout, target) as peer:
            yield peer


def _start(command: list[str], ends: ExitStack, *, reads: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    return ends.enter_context(
        subprocess.Popen(
            command, stdin=reads or subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    )
