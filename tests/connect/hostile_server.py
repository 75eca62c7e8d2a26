"""A hostile server: it does the handshake, then attacks in the way that its argument names.

It uses only the standard library, so that it starts quickly and can send any bytes.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

KIND = sys.argv[1]
SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 0
VERSION = "2026-07-28"
CHUNK = b"x" * 65536


def main() -> None:
    if KIND == "exits":
        print("no licence found: ask your administrator", file=sys.stderr)
        sys.exit(7)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            handle(message["id"], message["method"], message["params"])


def handle(request_id: Any, method: str, params: dict[str, Any]) -> None:
    match method:
        case "server/discover" | "initialize" if KIND == "garbage handshake":
            for line in [
                b"hello",
                b"[1,2]",
                b"\xff\xfe",
                b"{}",
                b'{"jsonrpc":"2.0","id":1,"id":1,"result":{}}',
            ]:
                send(line)
        case "server/discover":
            answer(request_id, {"supportedVersions": [VERSION], "capabilities": {"tools": {}}})
        case "tools/list" if KIND == "an endless list":
            number = int(params.get("cursor", 0))
            answer(request_id, {"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)})
        case "tools/list" if KIND == "a slow list":
            time.sleep(0.1)
            number = int(params.get("cursor", 0))
            answer(request_id, {"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)})
        case "tools/list" if KIND == "a long list":
            answer(request_id, {"tools": [tool(f"t{number}", "x" * 1900) for number in range(1900)]})
        case "tools/list" if KIND == "a list that is too long":
            answer(request_id, {"tools": [tool(f"t{number}", "x" * 1000) for number in range(9000)]})
        case "tools/list":
            answer(request_id, {"tools": [tool("attack"), tool("pid")]})
        case "tools/call" if params["name"] == "pid":
            answer(request_id, {"content": [{"type": "text", "text": str(os.getpid())}]})
        case "tools/call":
            ATTACKS[KIND](request_id)
        case _:
            send(
                json.dumps(
                    {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no"}}
                ).encode()
            )


def tool(name: str, description: str = "") -> dict[str, Any]:
    # Matching the pattern against a long string of a's takes exponential time.
    schema = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    return {"name": name, "description": description, "inputSchema": schema}


def long_line(size: int) -> Callable[[Any], None]:
    def attack(request_id: Any) -> None:
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request_id)
        for _ in range(size // len(CHUNK)) if size else itertools.count():
            write(CHUNK)
        send(b'"}]}}')

    return attack


def fixed_result(result: bytes) -> Callable[[Any], None]:
    return lambda request_id: send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request_id, result))


def flood(lines: Iterator[bytes]) -> Callable[[Any], None]:
    def attack(request_id: Any) -> None:
        for number, line in enumerate(lines):
            send(line)
            if SIZE and number == SIZE:
                answer(request_id, {"content": []})
                return

    return attack


def stderr_flood(request_id: Any) -> None:
    for _ in range(SIZE or 10**9):
        os.write(2, CHUNK)
    answer(request_id, {"content": []})


def garbage(request_id: Any) -> None:
    for line in [b"", b"null", b"[]", b'"x"', b"\x00\x01\x02", b"{" * 100, b"\xff" * 100]:
        send(line)
    send(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}' % request_id)


def requests() -> Iterator[bytes]:
    for number in itertools.count():
        yield b'{"jsonrpc":"2.0","id":%d,"method":"roots/list"}' % number


def notifications(method: bytes, params: bytes) -> Iterator[bytes]:
    while True:
        yield b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method, params)


def answer(request_id: Any, result: Any) -> None:
    send(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode())


def send(line: bytes) -> None:
    write(line + b"\n")


def write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


NESTED = b'{"content":[{"type":"text","text":"x","deep":%b1%b}],"structuredContent":{"a":%b%b}}'

ATTACKS: dict[str, Callable[[Any], None]] = {
    "a line of 1 GB": long_line(SIZE or 1024**3),
    "an endless line": long_line(0),
    "invalid UTF-8": fixed_result(b'{"content":[{"type":"text","text":"\xff\xc0\x80"}]}'),
    "a lone surrogate": fixed_result(rb'{"content":[{"type":"text","text":"\ud800"}]}'),
    "huge numbers": fixed_result(b'{"content":[{"type":"x","n":1e999}],"structuredContent":{"n":%b}}' % (b"1" * 9999)),
    "invalid content": fixed_result(b'{"content":[1,"a",null,{"type":"text"}],"structuredContent":[]}'),
    "nesting": fixed_result(NESTED % (b"[" * 200_000, b"]" * 200_000, b"[" * 9, b"]" * 9)),
    "some nesting": fixed_result(NESTED % (b"[" * 700, b"]" * 700, b"[" * 700, b"]" * 700)),
    "requests": flood(requests()),
    "notifications": flood(notifications(b"notifications/message", b'{"level":"info","data":"x"}')),
    "progress": flood(notifications(b"notifications/progress", b"[1]")),
    "changes": flood(notifications(b"notifications/tools/list_changed", b"{}")),
    "stderr": stderr_flood,
    "garbage": garbage,
    "a large answer": long_line(SIZE or 15 * 1024**2),
    "no answer": lambda request_id: None,
    "a pattern": fixed_result(b'{"content":[]}'),
}  # fmt: skip

if __name__ == "__main__":
    main()
