"""Hear of changes in the modern era: a server says what has changed to whoever asked to be told."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.connect.asks import Asks
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.client import Client
from holdfast.wire.mcp.eras import Era

log = logging.getLogger(__name__)

_PAUSE = 1.0


def is_due(client: Client) -> bool:
    """Whether the server says when its tools change, and has to be asked for it."""
    return client.greeting.era is Era.MODERN and _tells_of_tools(client.greeting.capabilities)


async def subscribe(client: Client, asks: Asks) -> None:
    """Ask to be told when the tools change; after a pause nobody knows what has changed meanwhile."""
    while True:
        try:
            await client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        except HoldfastError as error:
            log.debug("subscription ended", extra={"reason": error.message})
            return
        await asyncio.sleep(_PAUSE)
        asks.tools_changed()


@asynccontextmanager
async def subscribed(client: Client, asks: Asks) -> AsyncIterator[None]:
    """Be told in this block, where it is due."""
    task = asyncio.create_task(subscribe(client, asks)) if is_due(client) else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _tells_of_tools(capabilities: JsonObject) -> bool:
    tools = capabilities.get("tools")
    return isinstance(tools, dict) and tools.get("listChanged") is True
