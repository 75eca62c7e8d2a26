"""A light echo server over streamable HTTP: both eras, no framework. Prints its port."""

import asyncio
import json
import socket
import uuid
from typing import Any

import uvicorn

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = {"name": "echo", "description": "Echo.", "inputSchema": SCHEMA}
INFO = {"name": "light", "version": "1"}
TOOLS: dict[str, Any] = {"tools": {}}


def result_of(message: dict[str, Any]) -> dict[str, Any] | None:
    match message.get("method"):
        case "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": TOOLS, "serverInfo": INFO}
        case "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": TOOLS, "serverInfo": INFO}
        case "tools/list":
            return {"tools": [ECHO], "ttlMs": 0, "cacheScope": "private"}
        case "tools/call":
            return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        case _:
            return None


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["method"] == "GET":  # the server's own stream, on which nothing comes
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = b""
    while True:
        part = await receive()
        body += part.get("body", b"")
        if not part.get("more_body"):
            break
    message: dict[str, Any] = json.loads(body) if body else {}
    result = result_of(message)
    headers = [(b"content-type", b"application/json")]
    if message.get("method") == "initialize":
        headers.append((b"mcp-session-id", uuid.uuid4().hex.encode()))
    answer = b""
    if result is not None:
        answer = json.dumps(
            {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
        ).encode()
    headers.append((b"content-length", str(len(answer)).encode()))
    await send({"type": "http.response.start", "status": 200 if answer else 202, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def main() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
