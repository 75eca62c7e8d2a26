"""A server for tests: it counts, returns the context that it got, and misbehaves on request."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.context import META_KEY
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.frame import Notification, Request
from holdfast.wire.incoming_requests import RequestHandler
from holdfast.wire.mcp.eras import Implementation, PeerInfo
from holdfast.wire.mcp.server import McpRequest, server_peer
from holdfast.wire.mcp.tools import CallParams, text_result
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_stdio

QUESTION: JsonObject = {
    "message": "How many?",
    "requestedSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}
TOOLS = [
    "count",
    "whoami",
    "sleep",
    "die",
    "fail",
    "progress",
    "roots",
    "sample",
    "grow",
    "orphan",
    "refuse",
    "linger",
    "cancelled",
    "received",
    "read",
    "elicit",
    "wants",
    "mutter",
]


class Counter:
    def __init__(self) -> None:
        self.count = 0
        later = Path(os.environ.get("LATER", "/nowhere"))
        self.extra: list[str] = [later.read_text()] if later.exists() else []
        self.cancelled: list[str] = []
        self.received: dict[str, Any] = {}
        self.more = {"nextCursor": "again"} if "--endless" in sys.argv else {}
        self.peer: Peer
        extensions: JsonObject = {"extensions": {META_KEY: {}}} if "--shared" in sys.argv else {}
        self.info = PeerInfo(
            implementation=Implementation("counter", "1"),
            capabilities={"tools": {"listChanged": True}, **extensions},
        )

    async def answer(self, request: McpRequest) -> Any:
        self.received[request.method] = request.meta.get(META_KEY)
        match request.method:
            case "tools/list":
                return {
                    "tools": [
                        {"name": name, "inputSchema": {"type": "object"}} for name in [*TOOLS, *self.extra]
                    ]
                }
            case "tools/call":
                params = request.decode_params(CallParams)
                return await self.call(request, params.name, msgspec.json.decode(params.arguments))
            case "resources/list":
                return {"resources": [{"uri": "note://one", "name": "one"}], **self.more}
            case "resources/read":
                return {"contents": [{"uri": "note://one", "text": "hello"}]}
            case "prompts/list":
                return {"prompts": [{"name": "greet"}], **self.more}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")

    async def call(self, request: McpRequest, name: str, arguments: dict[str, Any]) -> Any:  # noqa: PLR0912
        match name:
            case "count":
                self.count += 1
                return text_result(str(self.count))
            case "whoami":
                seen = {
                    "env": {key: value for key, value in os.environ.items() if key.startswith("HOLDFAST_")},
                    "meta": request.meta.get(META_KEY),
                    "initialize": request.client.meta.get(META_KEY),
                    "pid": os.getpid(),
                    "cwd": str(Path.cwd()),
                    "arguments": arguments,
                    "era": request.client.era,
                    "keys": sorted(request.meta),
                    "all": dict(request.meta),
                }
                return {"content": [], "structuredContent": seen}
            case "sleep":
                await asyncio.sleep(arguments["seconds"])
                return text_result("awake")
            case "die":
                print(arguments.get("stderr", "\x1b[31mlast words"), file=sys.stderr, flush=True)
                os._exit(3)
            case "linger":
                if "progressToken" in request.meta:
                    await request.notify(
                        "notifications/progress",
                        {"progressToken": request.meta["progressToken"], "progress": 0},
                    )
                try:
                    await asyncio.sleep(600)
                finally:
                    self.cancelled.append(name)
            case "read":
                return text_result(Path(arguments["path"]).read_text())
            case "elicit":
                return text_result(
                    bytes(
                        await self.peer.request("elicitation/create", arguments or QUESTION, timeout=5)
                    ).decode()
                )
            case "wants":
                if "inputResponses" in (params := msgspec.json.decode(request.params)):
                    return text_result(msgspec.json.encode(params["inputResponses"]).decode())
                wanted: JsonObject = {
                    "it": {"method": arguments["method"], "params": arguments.get("params", QUESTION)}
                }
                return {"resultType": "input_required", "inputRequests": wanted}
            case "mutter":
                print(arguments["stderr"], end=arguments.get("end", "\n"), file=sys.stderr, flush=True)
                await asyncio.sleep(0 if arguments.get("answers") else 600)
                return text_result("ok")
            case "received":
                return {"content": [], "structuredContent": self.received}
            case "cancelled":
                return text_result(" ".join(self.cancelled))
            case "fail":
                return text_result("it did not work", is_error=True)
            case "refuse":
                raise HoldfastError(codes.BAD_ARGUMENT, "not like this")
            case "progress":
                for step in range(3):
                    await request.notify(
                        "notifications/progress",
                        {"progressToken": request.meta["progressToken"], "progress": step, "total": 3},
                    )
                return text_result("done")
            case "roots":
                return text_result(bytes(await self.peer.request("roots/list", timeout=5)).decode())
            case "sample":
                return text_result(
                    bytes(await self.peer.request("sampling/createMessage", {}, timeout=5)).decode()
                )
            case "grow":
                self.extra.append(arguments["name"])
                await request.notify("notifications/tools/list_changed", {})
                return text_result("grown")
            case "orphan":
                code = "import os, signal, sys, time; os.setsid(); signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
                child = subprocess.Popen(
                    [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
                )
                assert child.stdout
                return text_result(child.stdout.readline().decode().strip())
            case _:
                return text_result(f"{name} is new here")

    def on_notification(self, notification: Notification) -> None:
        pass


def without_discovery(handle: RequestHandler) -> RequestHandler:
    """Reject `server/discover`, so that the client falls back to the handshake."""

    async def answer(request: Request) -> Any:
        if request.method == "server/discover":
            raise HoldfastError(codes.METHOD_NOT_FOUND, "Method not found")
        return await handle(request)

    return answer


async def main() -> None:
    if "--slow" in sys.argv:
        await asyncio.sleep(0.3)
    if "--exits" in sys.argv:
        sys.exit(os.environ["LAST_WORDS"])
    if "--mute" in sys.argv:
        await asyncio.sleep(600)
    service = Counter()
    service.peer = server_peer(service)
    if "--handshake" in sys.argv:
        service.peer._incoming._handler = without_discovery(service.peer._incoming._handler)
    async with connect_stdio(service.peer):
        if "--stubborn" in sys.argv:
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            await asyncio.sleep(600)
        await service.peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
