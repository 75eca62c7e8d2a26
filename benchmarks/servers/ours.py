"""An echo server on our wire."""

import asyncio
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import McpRequest, server_peer
from holdfast.wire.mcp.tools import text_result
from holdfast.wire.messages import Notification
from holdfast.wire.pipe import connect_stdio

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {"tools": [{"name": "echo", "description": "Echo.", "inputSchema": SCHEMA}]}


class Arguments(msgspec.Struct):
    text: str


class Call(msgspec.Struct):
    name: str
    arguments: Arguments


class Echo:
    info = OwnInfo(implementation=Implementation("echo", "1"), capabilities={"tools": {}})

    async def answer(self, request: McpRequest) -> Any:
        match request.method:
            case "tools/call":
                return text_result(request.decode_params(Call).arguments.text)
            case "tools/list":
                return TOOLS
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")

    def on_notification(self, notification: Notification) -> None:
        pass


async def main() -> None:
    peer = server_peer(Echo())
    async with connect_stdio(peer):
        await peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
