"""A server on our own wire, for third-party clients."""

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

NOTHING = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SCHEMAS = {
    "cancelled": NOTHING,
    "count": NOTHING,
    "echo": TEXT,
    "fail": NOTHING,
    "shout": NOTHING,
    "wait": NOTHING,
}
TOOLS = {"tools": [{"name": name, "inputSchema": schema} for name, schema in SCHEMAS.items()]}


class EchoArguments(msgspec.Struct):
    text: str


class Counter:
    """Echoes, counts, shouts, fails and waits."""

    info = OwnInfo(
        implementation=Implementation("our-server", "1.2.3"),
        capabilities={"tools": {}},
        instructions="Echo and count.",
    )

    def __init__(self) -> None:
        self._counted = 0
        self._cancelled = 0

    async def answer(self, request: McpRequest) -> Any:
        match request.method:
            case "tools/list":
                return TOOLS
            case "tools/call":
                return await self._call(request, request.decode_params(CallParams))
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")

    def on_notification(self, notification: Notification) -> None:
        pass

    async def _call(self, request: McpRequest, call: CallParams) -> Any:
        match call.name:
            case "echo":
                return text_result(msgspec.json.decode(call.arguments, type=EchoArguments).text)
            case "count":
                self._counted += 1
                return text_result(str(self._counted))
            case "fail":
                return text_result("as asked", is_error=True)
            case "shout":
                print("a print() in a handler")
                sys.stdout.flush()
                await (await asyncio.create_subprocess_exec("echo", "a child of a handler")).wait()
                return text_result("shouted")
            case "wait":
                return await self._wait(request)
            case "cancelled":
                return text_result(str(self._cancelled))
            case _:
                raise HoldfastError(codes.BAD_ARGUMENT, f"There is no tool {call.name!r} here.")

    async def _wait(self, request: McpRequest) -> Any:
        begun = {"progressToken": request.meta["progressToken"], "progress": 1, "total": 2}
        await request.notify("notifications/progress", begun)
        try:
            await asyncio.Event().wait()
        finally:
            self._cancelled += 1


async def main() -> None:
    peer = server_peer(Counter())
    async with connect_stdio(peer):
        await peer.ended.wait()


asyncio.run(main())
