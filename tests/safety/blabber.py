"""A server that says its secrets wherever it can: in answers, errors, lines that are none, and on standard error."""

import json
import os
import sys
from typing import Any

SECRETS = " ".join([os.environ["SERVICE_API_KEY"], *sys.argv[1:]])


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


print(f"starting with {SECRETS}", file=sys.stderr, flush=True)
if "dies" in os.environ["TESTS_BLABBER"]:
    sys.exit(f"cannot start with {SECRETS}")
for line in sys.stdin:
    message = json.loads(line)
    identity, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "server/discover":
        say({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        names = ("say", "fail", "refuse", "garble", "die")
        say({"id": identity, "result": {"tools": [{"name": name, "inputSchema": {}} for name in names]}})
    elif method == "tools/call":
        match params["name"]:
            case "say":
                said = {"content": [{"type": "text", "text": SECRETS}], "structuredContent": {"a": [SECRETS]}}
                say({"id": identity, "result": said})
            case "fail":
                say(
                    {
                        "id": identity,
                        "result": {"content": [{"type": "text", "text": SECRETS}], "isError": True},
                    }
                )
            case "refuse":
                say({"id": identity, "error": {"code": -32000, "message": f"not with {SECRETS}"}})
            case "garble":
                say({"id": None, "error": {"code": -32700, "message": SECRETS}})
                print(SECRETS, flush=True)
                say({"id": identity, "result": {"content": 1, "why": SECRETS}})
            case _:
                print(f"dying of {SECRETS}", file=sys.stderr, flush=True)
                os._exit(1)
