"""A server whose lists are costly: 4000 empty resources on each of 20 pages, a prompt of 50,000 values on each of 10 pages, a template of open braces."""

import json
import sys
from typing import Any

TEMPLATE = "{" * 60_000


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    page = int(params.get("cursor", "0"))
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
            info = {"name": "costly", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": []}
        case "resources/list":
            more = {"nextCursor": str(page + 1)} if page < 19 else {}
            return {"resources": [{}] * 4000, **more}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "t"}]}
        case "prompts/list":
            more = {"nextCursor": str(page + 1)} if page < 9 else {}
            return {"prompts": [{"name": f"p{page}", "junk": [[]] * 25_000}], **more}
        case _:
            return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        failure = {"code": -32601, "message": "no"}
        outcome = {"error": failure} if result is None else {"result": result}
        print(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}, separators=(",", ":")), flush=True
        )
