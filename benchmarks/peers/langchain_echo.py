"""Calls an echo tool through langchain-mcp-adapters, for as many seconds as each line of its input says.

Runs in the environment that locks/langchain.txt describes, so it imports nothing of ours. After each line's calls
it prints their p50 in ms.
"""
# pyright: basic, reportMissingImports=false
# The type checker sees our environment, which cannot hold these packages: they need another major version of mcp.

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

Call = Callable[[], Awaitable[str]]


async def main(way: str, text: str, command: str, *arguments: str) -> None:
    """Take turns until the input ends; `way` is `session` (one for all calls) or `default` (a process per call)."""
    client = MultiServerMCPClient(
        {"echo": {"transport": "stdio", "command": command, "args": list(arguments)}}
    )
    async with WAYS[way](client) as tool:

        async def call() -> str:
            (block,) = await tool.ainvoke({"text": text})
            return block["text"]

        assert await call() == text
        while line := await asyncio.to_thread(sys.stdin.readline):
            p50 = statistics.median(await calls_for(float(line), call)) * 1000
            print(json.dumps(p50), flush=True)


@asynccontextmanager
async def one_session(client: MultiServerMCPClient) -> AsyncIterator[BaseTool]:
    async with client.session("echo") as session:
        (tool,) = await load_mcp_tools(session)
        yield tool


@asynccontextmanager
async def default(client: MultiServerMCPClient) -> AsyncIterator[BaseTool]:
    (tool,) = await client.get_tools()
    yield tool


WAYS = {"session": one_session, "default": default}


async def calls_for(seconds: float, call: Call) -> list[float]:
    """The same as in benchmarks/wire.py."""
    times: list[float] = []
    now = perf_counter()
    end = now + seconds
    while now < end:
        began = now
        await call()
        now = perf_counter()
        times.append(now - began)
    return times


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
