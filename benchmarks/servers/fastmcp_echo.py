"""An echo server on FastMCP."""

import sys

from fastmcp import FastMCP

server = FastMCP("echo", version="1")


@server.tool()
async def echo(text: str) -> str:
    """Echo."""
    return text


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run(
            "http",
            host="127.0.0.1",
            port=int(sys.argv[-1].rpartition(":")[2]),
            show_banner=False,
            log_level="ERROR",
        )
    else:
        server.run("stdio", show_banner=False, log_level="ERROR")
