"""An MCP server of the handshake era. Its tool `look` answers at once. Later, when a file exists, the server asks the client a question.

The tool `wait` makes a file, and answers when another one exists. The server writes the answer to its question into that file.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

writing = threading.Lock()
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("look", "wait")
]
answered = Path()


def send(message: dict[str, Any]) -> None:
    with writing:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def ask_when(file: Path, method: str) -> None:
    wait_for(file)
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    params: dict[str, Any] = {"message": "Later", "requestedSchema": schema, "messages": [], "maxTokens": 1}
    send({"id": "later", "method": method, "params": params})


def answer_when(file: Path, identifier: Any) -> None:
    wait_for(file)
    send({"id": identifier, "result": {"content": [{"type": "text", "text": file.read_text()}]}})


def call(name: str, arguments: dict[str, str], identifier: Any) -> None:
    global answered
    started, answered = Path(arguments["started"]), Path(arguments["answered"])
    if name == "look":
        threading.Thread(target=ask_when, args=(started, arguments["method"]), daemon=True).start()
        send({"id": identifier, "result": {"content": [{"type": "text", "text": "nothing"}]}})
    else:
        threading.Thread(target=answer_when, args=(answered, identifier), daemon=True).start()
        started.touch()


for line in sys.stdin:
    message: dict[str, Any] = json.loads(line)
    match message.get("method"):
        case "initialize":
            info = {"name": "later", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            send({"id": message["id"], "result": result})
        case "tools/list":
            send({"id": message["id"], "result": {"tools": TOOLS}})
        case "tools/call":
            call(message["params"]["name"], message["params"]["arguments"], message["id"])
        case None if message.get("id") == "later":
            answered.with_suffix(".new").write_text("error" if "error" in message else "result")
            answered.with_suffix(".new").replace(answered)
        case None:
            pass
        case _ if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        case _:
            pass
