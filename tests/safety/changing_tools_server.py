"""A server that reads its tool definitions from a file at every `tools/list`."""

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(sys.argv[1])


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            return {"tools": json.loads(TOOLS.read_text())}
        case _:
            return {"content": [{"type": "text", "text": f"{params.get('name')} ran"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message["params"])
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
