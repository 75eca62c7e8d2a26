"""A server of FastMCP."""

import itertools

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP("fastmcp-server", version="1.2.3", instructions="Echo and count.")
counts = itertools.count(1)
given_up: list[str] = []


@server.tool()
def echo(text: str) -> str:
    """Echo."""
    return text


@server.tool()
def count() -> str:
    """Count the calls of this process."""
    return str(next(counts))


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("as asked")


@server.tool()
async def wait(context: Context) -> str:
    """Say that it has begun, then wait to be cancelled."""
    await context.report_progress(1, 2)
    try:
        await anyio.sleep_forever()
    finally:
        given_up.append("wait")
    return "unreachable"


@server.tool()
def cancelled() -> str:
    """How many waits were given up."""
    return str(len(given_up))


if __name__ == "__main__":
    server.run("stdio", show_banner=False)
