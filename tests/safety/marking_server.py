"""A server that sends a log message with a long key in its `_meta`: of combining marks, or of letters."""

import json
import sys
from typing import Any

KEYS = {"marks": "a" + "\u0315\u0300" * 6000, "letters": "a" + "\u0430\u0431" * 6000}
TOOL = {"name": "send", "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}}}


def send(**members: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message["method"]:
            case "initialize":
                capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
                info = {"name": "marking", "version": "1"}
                version = message["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
                send(id=message["id"], result=result)
            case "tools/list":
                send(id=message["id"], result={"tools": [TOOL]})
            case "tools/call":
                meta = {KEYS[message["params"]["arguments"]["key"]]: 1}
                send(method="notifications/message", params={"level": "info", "data": "x", "_meta": meta})
                send(id=message["id"], result={"content": []})
            case _:
                if "id" in message:
                    send(id=message["id"], error={"code": -32601, "message": "no"})


if __name__ == "__main__":
    serve()
