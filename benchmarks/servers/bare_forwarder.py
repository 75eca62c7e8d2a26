"""The least that one CPython process can do for a call: forward raw frames between HTTP and one stdio server.

bare_forwarder.py <command…>. It has no sessions, no tokens, no limits and no record. It shows the bound for the gateway, and is no peer:
uvicorn, uvloop, httptools and msgspec do all the work that is left. Prints its URL.
"""

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE
from typing import Any

import msgspec
import uvicorn
import uvloop

_JSON = (b"content-type", b"application/json")


class Frame(msgspec.Struct, omit_defaults=True):
    """A JSON-RPC message. Everything but its id stays as it was sent."""

    jsonrpc: str = ""
    id: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode, _encode = msgspec.json.Decoder(Frame).decode, msgspec.json.Encoder().encode


class Forwarder:
    """Gives each request an id of its own, and each response the id of its request again."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin
        self._pending: dict[bytes, asyncio.Future[Frame]] = {}
        self._last_id = 0

    async def read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            frame = _decode(line)
            if (future := self._pending.pop(bytes(frame.id), None)) is not None:
                future.set_result(frame)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            part = await receive()
            body += part["body"]
            if not part["more_body"]:
                break
        request = _decode(body)
        if not request.id:
            self._stdin.write(body + b"\n")
            await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        self._last_id += 1
        request_id, own_id = request.id, b"%d" % self._last_id
        request.id = msgspec.Raw(own_id)
        future = self._pending[own_id] = asyncio.get_running_loop().create_future()
        self._stdin.write(_encode(request) + b"\n")
        response = await future
        response.id = request_id
        answer = _encode(response)
        headers = [_JSON, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def main(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    forwarder = Forwarder(process.stdin)
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        forwarder, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    reading = asyncio.create_task(forwarder.read(process.stdout))
    print(json.dumps({"url": f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", "handles": []}), flush=True)
    await uvicorn.Server(config).serve(sockets=[sock])
    process.stdin.close()
    await reading


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1:]))
