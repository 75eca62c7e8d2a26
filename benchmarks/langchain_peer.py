"""langchain-mcp-adapters as a peer, in its own process because it needs an older mcp than ours.

For the same reason it uses the handshake era with a server that the others use in the modern era.
"""

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.turns import Client, Turn
from benchmarks.wire import TEXT

PROGRAM = Path(__file__).resolve().parent / "peers" / "langchain_echo.py"


def langchain(python: str, way: str, server: list[str]) -> Client:
    """Call through peers/langchain_echo.py, which times its own calls; only turns cross the pipe."""

    @asynccontextmanager
    async def client() -> AsyncIterator[Turn]:
        command = [python, "-I", str(PROGRAM), way, TEXT, *server]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=_untraced())
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        async def turn(seconds: float) -> float:
            stdin.write(b"%f\n" % seconds)
            if not (line := await stdout.readline()):
                raise RuntimeError(f"{PROGRAM.name} ended early; it says above why.")
            return msgspec.json.decode(line, type=float)

        try:
            yield turn
        finally:
            stdin.close()
            await process.wait()

    return client


def _untraced() -> dict[str, str]:
    """The environment without the variables that make LangChain report every call to a service."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("LANGCHAIN_", "LANGSMITH_"))
    }
