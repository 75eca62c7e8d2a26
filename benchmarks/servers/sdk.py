"""An echo server on the SDK's low-level server, the fastest that the SDK has. With `--http`, it is served over HTTP, and prints its URL."""

import asyncio
import json
import socket
import sys
from typing import Any

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = mcp_types.ListToolsResult(
    tools=[mcp_types.Tool(name="echo", description="Echo.", input_schema=SCHEMA)]
)


async def list_tools(
    context: ServerRequestContext[Any], params: mcp_types.PaginatedRequestParams | None
) -> mcp_types.ListToolsResult:
    return TOOLS


async def call_tool(
    context: ServerRequestContext[Any], params: mcp_types.CallToolRequestParams
) -> mcp_types.CallToolResult:
    assert params.arguments is not None
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=params.arguments["text"])]
    )


server = Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    async with stdio_server() as (source, target):
        await server.run(source, target, server.create_initialization_options())


def serve_http() -> None:
    import uvicorn

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/mcp", "handles": []}), flush=True)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    if "--http" in sys.argv:
        serve_http()
    else:
        asyncio.run(main())
