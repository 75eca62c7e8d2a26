"""A server that crashes when told to. It notes every start as a line in a file, and exits at once if a file `broken` is beside it.

It uses only the standard library, so that it starts quickly.
"""

import json
import sys
from pathlib import Path
from typing import Any

STARTS = Path(sys.argv[1])
CAPABILITIES: dict[str, Any] = {"tools": {}, "extensions": {"dev.holdfast/session": {}}}


def main() -> None:
    with STARTS.open("a") as file:
        file.write("started\n")
    if STARTS.with_name("broken").exists():
        print("no licence found", file=sys.stderr)
        sys.exit(7)
    print("starting", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message["id"], message["method"], message["params"])


def answer(request_id: Any, method: str, params: dict[str, Any]) -> None:
    result: dict[str, Any]
    match method:
        case "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        case "tools/list":
            result = {
                "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("crash", "fine")]
            }
        case "tools/call" if params["name"] == "crash":
            print("out of memory", file=sys.stderr)
            sys.exit(3)
        case _:
            result = {"content": [{"type": "text", "text": "fine"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}), flush=True)


if __name__ == "__main__":
    main()
