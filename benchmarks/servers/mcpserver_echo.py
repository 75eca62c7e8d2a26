"""An echo server on the SDK's MCPServer."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo", version="1", log_level="ERROR")


@server.tool()
async def echo(text: str) -> str:
    """Echo."""
    return text


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[-1].rpartition(":")[2]))
    else:
        server.run("stdio")
