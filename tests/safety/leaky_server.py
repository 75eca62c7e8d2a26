"""A server that leaks its secrets in results, errors, invalid lines and on standard error."""

import json
import os
import sys
from typing import Any

LEAKED = ("SERVICE_API_KEY", "DATABASE_URL", "DB_PASS", "OPENAI_KEY", "GITHUB_PAT")
SECRETS = " ".join([*(os.environ[name] for name in LEAKED if name in os.environ), *sys.argv[1:]])


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


print(f"starting with {SECRETS}", file=sys.stderr, flush=True)
if os.environ["TESTS_LEAKY_SERVER"] == "failing":
    sys.exit(f"cannot start with {SECRETS}")
for line in sys.stdin:
    message = json.loads(line)
    request_id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "server/discover":
        send(
            {"id": request_id, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
        )
    elif method == "tools/list":
        names = ("succeed", "fail", "refuse", "garble", "die")
        send({"id": request_id, "result": {"tools": [{"name": name, "inputSchema": {}} for name in names]}})
    elif method == "tools/call":
        match params["name"]:
            case "succeed":
                result = {
                    "content": [{"type": "text", "text": SECRETS}],
                    "structuredContent": {"a": [SECRETS]},
                }
                send({"id": request_id, "result": result})
            case "fail":
                send(
                    {
                        "id": request_id,
                        "result": {"content": [{"type": "text", "text": SECRETS}], "isError": True},
                    }
                )
            case "refuse":
                send({"id": request_id, "error": {"code": -32000, "message": f"not with {SECRETS}"}})
            case "garble":
                send({"id": None, "error": {"code": -32700, "message": SECRETS}})
                print(SECRETS, flush=True)
                send({"id": request_id, "result": {"content": 1, "why": SECRETS}})
            case _:
                print(f"dying of {SECRETS}", file=sys.stderr, flush=True)
                os._exit(1)
