"""A server with a call that waits while its client does another handshake."""

import asyncio

from holdfast.toolkit import Call, Toolbox, Workspace

box = Toolbox("snapshot")
begun, released = asyncio.Event(), asyncio.Event()
found: list[str] = []


@box.tool(operation="query")
async def hold(workspace: Workspace, call: Call) -> None:
    """Record the workspace, wait for `release`, and record it again."""
    found.append(call.announced_workspace)
    begun.set()
    await released.wait()
    found.append(workspace.slug)


@box.tool(operation="query")
async def is_held() -> None:
    """Wait until `hold` is waiting."""
    await begun.wait()


@box.tool()
async def release() -> None:
    """Let `hold` continue."""
    released.set()
    await asyncio.sleep(0)


@box.tool(operation="query")
async def seen() -> list[str]:
    """What `hold` recorded, before and after."""
    while len(found) < 2:
        await asyncio.sleep(0.01)
    return found


@box.tool(operation="query")
async def where(workspace: Workspace) -> dict[str, str]:
    """Return the workspace of this call."""
    return {"slug": workspace.slug}


if __name__ == "__main__":
    box.main()
