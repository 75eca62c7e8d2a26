"""Servers on loopback for the tests of remote links: the SDK's, and scripted ones."""

import asyncio
import json
import socket
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from holdfast.connect.connection import ConnectOptions
from holdfast.host.host import Host
from holdfast.session.session import Session
from holdfast.wire.mcp.eras import Era

App = Callable[..., Awaitable[None]]
HEADER = "holdfast-context"
VERSION = "2026-07-28"


ERAS = {"handshake": Era.HANDSHAKE, "modern": Era.MODERN}


class Eras(dict[str, Era]):
    """Remembers one era for every server."""

    def __init__(self, era: Era) -> None:
        super().__init__()
        self._era = era

    def get(self, key: str, default: Any = None) -> Any:
        return self._era


def connect_options(era: Era | None = None, **more: Any) -> ConnectOptions:
    """Options for tests: links end quickly, and the era is known if one is given."""
    return ConnectOptions(end_seconds=0.5, **({"eras": Eras(era)} if era else {}), **more)


def http_entry(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "http", "url": f"{url}/mcp", **more}


def sse_entry(url: str) -> dict[str, Any]:
    return {"type": "sse", "url": f"{url}/sse"}


@asynccontextmanager
async def open_session(
    make_host: Callable[..., Host], folder: Path, servers: dict[str, Any], options: ConnectOptions
) -> AsyncIterator[Session]:
    """A session of a new host with these servers."""
    async with make_host(servers, options=options) as host, host.session(cwd=folder) as session:
        yield session


def data_dir(make_host: Callable[..., Host]) -> Path:
    """The data folder of this test's hosts."""
    return make_host({}).settings.data_dir


class _Server(uvicorn.Server):
    """Sets an event when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def serve(app: App, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serve an application. On exit, its connections are closed."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server = _Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0, **options))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ready.cancel()
        server.should_exit = True
        await task
        listener.close()


def sdk_program() -> dict[str, Any]:
    """The entry that runs `sdk_server` as a local program."""
    code = "from tests.connect.web import sdk_server; sdk_server().run('stdio')"
    root = str(Path(__file__).parents[2])
    return {"command": sys.executable, "args": ["-c", code], "env": {"PYTHONPATH": root}}


def sdk_server() -> MCPServer:
    """A server built with the official SDK, for both eras. It counts calls per session."""
    server = MCPServer("sdk", version="1")
    counts: Counter[str] = Counter()

    def session_of(context: Context) -> str:
        headers = context.headers or {}
        return headers.get("mcp-session-id", "none")

    @server.tool()
    def count(context: Context) -> str:
        """Count the calls of one session."""
        counts[session_of(context)] += 1
        return str(counts[session_of(context)])

    @server.tool()
    def meta(context: Context) -> str:
        """Return the `_meta` of the call."""
        return json.dumps(dict(context.request_context.meta or {}))

    @server.tool()
    async def progress(context: Context) -> str:
        """Report progress, then answer."""
        await context.report_progress(1, 2)
        return "done"

    @server.tool()
    async def grow(context: Context) -> str:
        """Add a tool, and notify the client."""
        server.add_tool(lambda: "new", name="grown")
        if context.protocol_version == VERSION:
            await context.notify_tools_changed()
        else:
            await context.session.send_tool_list_changed()
        return "grown"

    return server


@dataclass
class ScriptedServer:
    """A server that records its requests, and answers with `answer` or a default."""

    answer: Callable[["ScriptedServer", Request, dict[str, Any]], Awaitable[Response | None]] | None = None
    requests: list[tuple[str, dict[str, str], bytes]] = field(
        default_factory=list[tuple[str, dict[str, str], bytes]]
    )

    second_phase: bool = False
    """Set by a test, so that `answer` can behave differently from then on."""
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        request = Request(scope, receive)
        body = await request.body()
        self.requests.append((request.method, dict(request.headers), body))
        message: dict[str, Any] = json.loads(body) if body else {}
        response = await self.answer(self, request, message) if self.answer else None
        await (response or self.default_response(request, message))(scope, receive, send)

    def default_response(self, request: Request, message: dict[str, Any]) -> Response:
        match message.get("method"):
            case "server/discover":
                return result_response(
                    message, {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
                )
            case "tools/list":
                return result_response(
                    message, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
                )
            case "tools/call":
                return result_response(message, {"content": [{"type": "text", "text": "gone"}]})
            case _:
                return Response(status_code=405)

    def calls(self) -> list[tuple[dict[str, str], bytes]]:
        """The headers and bodies of the calls that it received."""
        return [(headers, body) for _, headers, body in self.requests if b'"tools/call"' in body]


async def hang_after_start(
    scripted: ScriptedServer, request: Request, message: dict[str, Any]
) -> Response | None:
    """Answer a call with a stream that never has an event."""
    if message.get("method") != "tools/call":
        return None

    async def stream() -> AsyncIterator[bytes]:
        yield b": begun\n\n"
        scripted.called.set()
        await asyncio.Event().wait()

    return StreamingResponse(stream(), media_type="text/event-stream")


def result_response(message: dict[str, Any], result: dict[str, Any]) -> Response:
    return JSONResponse(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
    )


def handshake_response(message: dict[str, Any]) -> Response | None:
    """The answers of a server of the handshake era during the handshake; None for other messages."""
    match message.get("method"):
        case "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case "initialize":
            who = {"name": "plain", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": who,
            }
            response = result_response(message, result)
            response.headers["mcp-session-id"] = uuid.uuid4().hex
            return response
        case "notifications/initialized":
            return Response(status_code=202)
        case _:
            return None
