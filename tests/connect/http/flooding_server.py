"""A server that floods a call's event stream. A script: `python flooding_server.py TRANSPORT KIND`, which prints its port.

The transport is `modern`, `handshake` or `sse`. It serves each connection in a thread, and a flood ends when the client
disconnects.
"""

import json
import re
import socket
import sys
import threading
from typing import Any

VERSION = "2026-07-28"
TOOL = {"name": "go", "inputSchema": {"type": "object"}}
BATCH_BYTES = 256 * 1024


def notification(method: str, **params: Any) -> bytes:
    return event({"method": method, "params": params})


def event(message: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode()


FLOODS: dict[str, bytes] = {
    "progress": notification("notifications/progress", progressToken=1, progress=1),
    "log messages": notification("notifications/message", level="info", data="x"),
    "changes": notification("notifications/tools/list_changed"),
    "requests": event({"id": "q", "method": "ping"}),
    "answers": event({"id": 10**9, "result": {}}),
    "broken events": b"data: {\n\n",
    "other events": b"event: x\ndata: {}\n\n",
    "comments": b":\n",
    "empty lines": b"\n",
    "tiny chunks": b":",
    "long events": notification("notifications/message", level="info", data=["x"] * 50_000),
}


class Connection:
    """One connection of a client."""

    streams: list["Connection"] = []  # noqa: RUF012 - the stream of the SSE transport

    def __init__(self, sock: socket.socket, transport: str, kind: str) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")
        self._transport = transport
        self._kind = kind

    def serve(self) -> None:
        try:
            while line := self._file.readline():
                length = 0
                while (header := self._file.readline()) not in (b"\r\n", b""):
                    if found := re.match(rb"content-length: *([0-9]+)", header, re.IGNORECASE):
                        length = int(found[1])
                body = self._file.read(length)
                self._answer(line.split(b" ")[0], json.loads(body) if body else {})
        except OSError:
            pass

    def _answer(self, method: bytes, message: dict[str, Any]) -> None:
        if method == b"GET" and self._transport == "sse":
            self._start_stream()
            self._chunk(b"event: endpoint\ndata: /messages\n\n")
            Connection.streams.append(self)
            threading.Event().wait()
        if method != b"POST" or "id" not in message or "method" not in message:
            self._send(202 if method == b"POST" else 405)
        elif message["method"] == "tools/call":
            self._flood()
        elif self._transport == "sse":
            self._send(202)
            Connection.streams[-1].send_event(self._result(message))
        else:
            self._send(200, json.dumps(self._result(message)).encode())

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        capabilities = {"tools": {"listChanged": True}}
        match message["method"]:
            case "server/discover" if self._transport == "modern":
                result = {"supportedVersions": [VERSION], "capabilities": capabilities}
            case "initialize" if self._transport != "modern":
                who = {"name": "flood", "version": "1"}
                version = "2025-11-25" if self._transport == "handshake" else "2024-11-05"
                result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": who}
            case "tools/list":
                result = {"tools": [TOOL]}
            case _:
                return {**answer, "error": {"code": -32601, "message": "Method not found"}}
        return {**answer, "result": {"resultType": "complete", **result}}

    def _flood(self) -> None:
        if self._transport == "sse":
            self._send(202)
            stream = Connection.streams[-1]
        else:
            stream = self
            self._start_stream()
        one = FLOODS[self._kind]
        batch = one * max(1, BATCH_BYTES // len(one))
        if self._kind == "tiny chunks":
            batch = b"1\r\n:\r\n" * (BATCH_BYTES // 6)
        else:
            batch = b"%x\r\n%b\r\n" % (len(batch), batch)
        while True:
            stream._sock.sendall(batch)

    def send_event(self, message: dict[str, Any]) -> None:
        self._chunk(b"event: message\ndata: %s\n\n" % json.dumps(message).encode())

    def _start_stream(self) -> None:
        self._sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    def _chunk(self, data: bytes) -> None:
        self._sock.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, status: int, body: bytes = b"") -> None:
        head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._sock.sendall(head % (status, len(body)) + body)


def main() -> None:
    transport, kind = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=Connection(sock, transport, kind).serve, daemon=True).start()


if __name__ == "__main__":
    main()
