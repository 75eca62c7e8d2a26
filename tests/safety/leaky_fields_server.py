"""A server that puts its secret into every field that it can send."""

import json
import os
import sys
from typing import Any

SECRET = os.environ["API_TOKEN"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": SECRET,
    "properties": {SECRET: {"type": "string", "description": SECRET, "default": SECRET, "enum": [SECRET]}},
}


def tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": f"Query {SECRET}",
        "description": f"Queries https://db.example/{SECRET}",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object", "description": SECRET},
        "annotations": {"title": SECRET, "readOnlyHint": True},
        "icons": [{"src": f"https://icons.example/{SECRET}"}],
        "_meta": {SECRET: SECRET},
    }


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "server/discover":
            info = {"name": SECRET, "version": SECRET, "title": SECRET}
            capabilities: dict[str, Any] = {"tools": {}, "logging": {}, "experimental": {SECRET: {}}}
            result: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            result["serverInfo"] = info
            result["instructions"] = SECRET
        case "tools/list":
            result = {"tools": [tool(name) for name in ("query", SECRET, f"not valid {SECRET}")]}
        case "tools/call":
            progress = message["params"].get("_meta", {}).get("progressToken")
            if progress is not None:
                params = {"progressToken": progress, "progress": 1, "message": SECRET}
                send({"method": "notifications/progress", "params": params})
            params = {"level": "error", "logger": SECRET, "data": {SECRET: SECRET}}
            send({"method": "notifications/message", "params": params})
            if "fail" in message["params"].get("arguments", {}):
                error = {"code": -32000, "message": SECRET, "data": {SECRET: SECRET}}
                send({"id": message["id"], "error": error})
                continue
            link = {"type": "resource_link", "uri": f"https://h.example/{SECRET}", "name": SECRET}
            resource = {"type": "resource", "resource": {"uri": f"x:{SECRET}", "text": SECRET}}
            result = {
                "content": [{"type": "text", "text": SECRET, "_meta": {SECRET: SECRET}}, link, resource],
                "structuredContent": {SECRET: [SECRET]},
                "_meta": {SECRET: SECRET},
            }
        case _:
            continue
    if "id" in message:
        send({"id": message["id"], "result": result})
