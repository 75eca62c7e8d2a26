"""langchain-mcp-adapters as a peer: it needs an older mcp than ours, so its calls are made in a process of its own.

For the same reason it speaks the handshake era to the server that others speak the modern one to.
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
    """The ways are those of peers/langchain_echo.py, which times its calls itself: only turns cross the pipe."""

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
    """LangChain reports every call to a service when its variables say so, which is not what is measured."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("LANGCHAIN_", "LANGSMITH_"))
    }
