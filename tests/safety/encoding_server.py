"""A server that prints its password in the encodings that ordinary programs write: as a result, as an error and on standard error."""

import html
import json
import os
import shlex
import sys
from typing import Any
from urllib.parse import quote, quote_plus

PASSWORD = os.environ["DB_PASSWORD"]


def escape(text: str, characters: str, digits: str) -> str:
    return "".join(f"\\u{ord(c):{digits}}" if c in characters else c for c in text)


FORMS = {
    "encodeURIComponent": quote(PASSWORD, safe="!'()*~"),
    "encodeURIComponent twice": quote(quote(PASSWORD, safe="!'()*~"), safe="!'()*~"),
    "encodeURI": quote(PASSWORD, safe=";,/?:@&=+$-_.!~*'()#"),
    "URLSearchParams": quote_plus(PASSWORD, safe="*"),
    "JSON of Go": escape(json.dumps(PASSWORD, ensure_ascii=False), "<>&", "04x"),
    "JSON of .NET": escape(
        json.dumps(PASSWORD, ensure_ascii=False)[1:-1].replace('\\"', '"'), "<>&'+\"é", "04X"
    ),
    "JSON of Java": escape(json.dumps(PASSWORD, ensure_ascii=False), "é", "04X"),
    "JSON of PHP": json.dumps(PASSWORD).replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps(PASSWORD, ensure_ascii=False), ensure_ascii=False),
    "HTML of Go": html.escape(PASSWORD).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "HTML 5": html.escape(PASSWORD).replace("&#x27;", "&apos;"),
    "shell": "'" + PASSWORD.replace("'", "'\\''") + "'",
    "shlex": shlex.quote(PASSWORD),
    "backslashes": "".join(c if c.isalnum() else f"\\{c}" for c in PASSWORD),
    "colour": f"{PASSWORD[:5]}\x1b[31m{PASSWORD[5:]}",
    "invisible": "\u200b".join(PASSWORD),
    "link": f"{PASSWORD[:5]}\x1b]8;;https://x.test\x1b\\{PASSWORD[5:]}",
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    request_id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "server/discover":
        send(
            {"id": request_id, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
        )
    elif method == "tools/list":
        send(
            {
                "id": request_id,
                "result": {"tools": [{"name": name, "inputSchema": {}} for name in ("succeed", "refuse")]},
            }
        )
    elif method == "tools/call":
        text = FORMS[params["arguments"]["form"]]
        print(f"error: >>>{text}<<<", file=sys.stderr, flush=True)
        if params["name"] == "succeed":
            send({"id": request_id, "result": {"content": [{"type": "text", "text": f">>>{text}<<<"}]}})
        else:
            send({"id": request_id, "error": {"code": -32000, "message": f">>>{text}<<<"}})
