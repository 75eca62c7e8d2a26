"""A server with terminal escapes in every text that it sends. It uses only the standard library, so that it starts quickly."""

import json
import sys
from typing import Any

HOSTILE = "x\x1b[2J\x1b]0;t\x07\x9b31m\x85\u202ey\u2066\u200b\u2028\x08\rz\nHint: run this"
TOOLS = ("blocks", "refuse", "envelope")


def answer(request_id: Any, **body: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request_id, **body}), flush=True)


def call(request_id: Any, name: str) -> None:
    block = {"type": HOSTILE, "mimeType": HOSTILE, "data": HOSTILE}
    match name:
        case "blocks":
            answer(request_id, result={"content": [block, {"type": "text", "text": HOSTILE}]})
        case "envelope":
            failure = {"ok": False, "error": HOSTILE, "hint": HOSTILE, "details": {"issues": [HOSTILE]}}
            answer(request_id, result={"content": [], "structuredContent": failure, "isError": True})
        case _:
            answer(request_id, error={"code": -32000, "message": HOSTILE})


print(HOSTILE, file=sys.stderr, flush=True)
if "--dies" in sys.argv:
    sys.exit(1)
for line in sys.stdin:
    message = json.loads(line)
    request_id, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "server/discover":
            info = {"name": HOSTILE, "version": HOSTILE}
            answer(
                request_id,
                result={
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                },
            )
        case "tools/list":
            tools: list[dict[str, Any]] = [
                {"name": name, "title": HOSTILE, "description": HOSTILE, "inputSchema": {}}
                for name in (*TOOLS, HOSTILE)
            ]
            answer(request_id, result={"tools": tools})
        case "tools/call":
            call(request_id, params["name"])
        case _:
            pass
