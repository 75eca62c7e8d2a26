"""A server that declares tasks, has a tool that requires them, and answers each call of `created` with a task.

`--handshake` or `--modern` limits the server to one era.
"""

import asyncio
import sys
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import McpRequest, server_peer
from holdfast.wire.mcp.tools import CallParams, text_result
from holdfast.wire.messages import Notification
from holdfast.wire.pipe import connect_stdio
from tests.gateway.one_era import without_discovery, without_handshake

EXTENSION = "io.modelcontextprotocol/tasks"
TOOLS = {"plain": "forbidden", "either": "optional", "long": "required", "created": "optional"}
TASK = {
    "resultType": "task",
    "taskId": "7",
    "status": "working",
    "createdAt": "2026-11-17T00:00:00Z",
    "lastUpdatedAt": "2026-11-17T00:00:00Z",
    "ttlMs": None,
}


class Tasks:
    """The server's answers. All tools but `created` return what they got."""

    info = OwnInfo(
        implementation=Implementation("tasks", "1"),
        capabilities={
            "tools": {},
            "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}, "list": {}},
            "extensions": {EXTENSION: {}},
        },
    )

    async def answer(self, request: McpRequest) -> Any:
        match request.method:
            case "tools/list":
                return {
                    "tools": [
                        {
                            "name": name,
                            "inputSchema": {"type": "object"},
                            "execution": {"taskSupport": support},
                        }
                        for name, support in TOOLS.items()
                    ]
                }
            case "tools/call":
                if request.decode_params(CallParams).name == "created":
                    return TASK
                capabilities = {**request.client.capabilities}
                seen = {"params": sorted(msgspec.json.decode(request.params)), "capabilities": capabilities}
                return text_result(msgspec.json.encode(seen).decode())
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")

    def on_notification(self, notification: Notification) -> None:
        pass


async def main() -> None:
    peer = server_peer(Tasks())
    if "--handshake" in sys.argv:
        peer._incoming._handler = without_discovery(peer._incoming._handler)
    if "--modern" in sys.argv:
        peer._incoming._handler = without_handshake(peer._incoming._handler)
    async with connect_stdio(peer):
        await peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
