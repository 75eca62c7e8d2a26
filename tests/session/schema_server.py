"""A server with one tool, `t`, whose schema is the first argument. It answers with the line that it received."""

import json
import sys
from typing import Any

SCHEMA = json.loads(sys.argv[1])


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(
                json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message, line)}),
                flush=True,
            )


def answer(message: Any, line: str) -> dict[str, Any]:
    match message["method"]:
        case "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            return {"tools": [{"name": "t", "inputSchema": SCHEMA}]}
        case _:
            return {"content": [{"type": "text", "text": line}]}


if __name__ == "__main__":
    main()
