"""A server with a resource, a template, a prompt, a completion and log messages. Its tool `extend` adds a prompt and a resource.

`--handshake` or `--modern` limits the server to one era.
"""

import asyncio
import os
import sys

from holdfast.toolkit import Call, Toolbox
from holdfast.toolkit.authentication import authenticator_from_env
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.pipe import connect_stdio
from tests.gateway.one_era import without_discovery, without_handshake

box = Toolbox("news", version="1.0", dynamic=True)


@box.tool
async def publish(call: Call) -> str:
    """Change the resource, and log it."""
    await call.log("debug", "publishing")
    await call.log("warning", "published")
    box.resource_updated("news://today")
    return "published"


@box.tool
async def extend() -> str:
    """Add a prompt and a resource."""

    @box.prompt
    async def translate() -> str:  # pyright: ignore[reportUnusedFunction]
        """Ask for a translation."""
        return "Translate."

    @box.resource("news://tomorrow")
    async def tomorrow() -> str:  # pyright: ignore[reportUnusedFunction]
        """The next news."""
        return "not yet"

    return "extended"


@box.resource("news://today")
async def today() -> str:
    """The news."""
    return "nothing new"


@box.resource("news://{year}")
async def archive(year: str) -> str:
    """The news of a year."""
    return f"the news of {year}"


@box.prompt
async def summarize(year: str) -> str:
    """Ask for a summary."""
    return f"Summarize {year}."


@box.completion("summarize", "year")
async def years(value: str) -> list[str]:
    """The years that begin with the value."""
    return [year for year in ("2025", "2026") if year.startswith(value)]


async def main() -> None:
    server = box.server(authenticator_from_env(os.environ, box.aliases))
    peer = server_peer(server)
    if "--handshake" in sys.argv:
        peer._incoming._handler = without_discovery(peer._incoming._handler)
    if "--modern" in sys.argv:
        peer._incoming._handler = without_handshake(peer._incoming._handler)
    async with connect_stdio(peer):
        await peer.ended.wait()
    await server.close()


if __name__ == "__main__":
    asyncio.run(main())
