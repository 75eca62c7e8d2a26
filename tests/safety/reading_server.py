"""An MCP server that reads lines as many servers do: it ignores those that are not JSON.

Its tool `delete` makes the file that the first argument names, and ends the process. With `--any-line-break`, the server ends a line
also at a CR, as a text stream of Python does.
"""

import json
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": name == "look"}}
    for name in ("look", "delete")
]
PROMPTS = [{"name": "greet", "arguments": [{"name": "name"}]}]
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}


def answer(request: dict[str, Any]) -> Any:
    match request["method"]:
        case "initialize":
            info = {"name": "reader", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            return {"messages": []}
        case "completion/complete":
            return {"completion": {"values": []}}
        case "tools/call":
            if request["params"]["name"] == "delete":
                Path(sys.argv[1]).touch()
                sys.exit()
            return {"content": [{"type": "text", "text": "nothing"}]}
        case _:
            return None


for line in TextIOWrapper(sys.stdin.buffer, newline=None if "--any-line-break" in sys.argv else "\n"):
    try:
        message: Any = json.loads(line)
    except ValueError:
        continue
    if "method" in message and "id" in message:
        result = answer(message)
        body = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
