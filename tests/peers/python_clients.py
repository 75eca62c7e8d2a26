"""Run one conversation with an MCP server as a Python client; print it as one JSON object.

python python_clients.py <sdk|fastmcp> <handshake|modern> <command> <arguments…>, or an address instead of a command
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Awaitable
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol, TextIO

import mcp_types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError

ERAS = {"handshake": "legacy", "modern": "auto"}


class Call(Protocol):
    """How both clients call a tool."""

    def __call__(
        self, name: str, arguments: dict[str, Any], *, progress: ProgressFnT | None = None
    ) -> Awaitable[mcp_types.CallToolResult]: ...


class AnyRequest(mcp_types.Request[mcp_types.RequestParams, str]):
    """A request of any method."""

    params: mcp_types.RequestParams = mcp_types.RequestParams()


async def main(library: str, era: str, *command: str) -> None:
    connected = {"sdk": sdk, "fastmcp": fastmcp}[library]
    errors = LoggedWarnings()
    logging.getLogger().addHandler(errors)
    with tempfile.TemporaryFile("w+") as stderr:
        async with connected(list(command), ERAS[era], stderr) as (session, call):
            said = await conversation(session, call)
        stderr.seek(0)
        said["stderr"] = stderr.read().splitlines()
    said["errors"] = errors.messages
    print(json.dumps(said))


@asynccontextmanager
async def sdk(command: list[str], mode: str, stderr: TextIO):
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    if is_address(command):
        server = command[0]
    else:
        server = stdio_client(StdioServerParameters(command=command[0], args=command[1:]), errlog=stderr)
    async with Client(server, mode=mode) as client:

        async def call(
            name: str, arguments: dict[str, Any], *, progress: ProgressFnT | None = None
        ) -> mcp_types.CallToolResult:
            return await client.call_tool(name, arguments, progress_callback=progress)

        yield client.session, call


@asynccontextmanager
async def fastmcp(command: list[str], mode: str, stderr: TextIO):
    from fastmcp.client import Client
    from fastmcp.client.transports import StdioTransport

    if is_address(command):
        server = command[0]
    else:
        server = StdioTransport(command[0], command[1:], keep_alive=False, log_file=stderr)
    async with Client(server, mode=mode) as client:

        async def call(
            name: str, arguments: dict[str, Any], *, progress: ProgressFnT | None = None
        ) -> mcp_types.CallToolResult:
            return await client.call_tool_mcp(name, arguments, progress_handler=progress)

        yield client.session, call


def is_address(command: list[str]) -> bool:
    return command[0].startswith("http://")


async def conversation(session: ClientSession, call: Call) -> dict[str, Any]:
    server = session.server_info
    assert server is not None
    said: dict[str, Any] = {"server": [server.name, server.version, session.instructions]}
    said["era"] = "modern" if session.discover_result else "handshake"
    said["tools"] = [tool.name for tool in (await session.list_tools()).tools]
    said["echo"] = read(await call("echo", {"text": "häß \U0001f41a"}))
    said["count"] = [read(await call("count", {})), read(await call("count", {}))]
    said["fail"] = read(await call("fail", {}))
    said["unknown tool"] = await refusal(call("nope", {}))
    unknown = AnyRequest(method="no/such/method")
    said["unknown method"] = await refusal(session.send_request(unknown, mcp_types.EmptyResult))
    said["shout"] = read(await call("shout", {}))

    begun: asyncio.Queue[dict[str, float | None]] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.put_nowait({"progress": progress, "total": total})

    waiting = asyncio.ensure_future(call("wait", {}, progress=on_progress))
    said["progress"] = await begun.get()
    waiting.cancel()
    await asyncio.wait([waiting])
    said["cancelled"] = read(await call("cancelled", {}))
    return said


async def refusal(answer: Awaitable[Any]) -> int | Literal["answered"]:
    try:
        await answer
    except MCPError as error:
        return error.code
    return "answered"


def read(result: mcp_types.CallToolResult) -> list[bool | str]:
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return [result.is_error or False, block.text]


class LoggedWarnings(logging.Handler):
    """Messages that the client logs as warnings or errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
