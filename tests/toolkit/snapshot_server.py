"""A server whose call can be held open while its client changes its mind."""

import asyncio

from holdfast.toolkit import Call, Toolbox, Workspace

box = Toolbox("snapshot")
begun, let_go = asyncio.Event(), asyncio.Event()
found: list[str] = []


@box.tool(operation="query")
async def hold(workspace: Workspace, call: Call) -> None:
    """Look, wait until it is let go, and look again."""
    found.append(call.announced)
    begun.set()
    await let_go.wait()
    found.append(workspace.slug)


@box.tool(operation="query")
async def is_held() -> None:
    """Wait until the call is held."""
    await begun.wait()


@box.tool()
async def release() -> None:
    """Let the call go on."""
    let_go.set()
    await asyncio.sleep(0)


@box.tool(operation="query")
async def seen() -> list[str]:
    """What the held call saw, before and after."""
    while len(found) < 2:
        await asyncio.sleep(0.01)
    return found


@box.tool(operation="query")
async def where(workspace: Workspace) -> dict[str, str]:
    """Say which workspace this works in."""
    return {"slug": workspace.slug}


if __name__ == "__main__":
    box.main()
