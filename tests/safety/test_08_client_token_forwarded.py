"""Attack 8: the token of an MCP client reaches a server behind the gateway, a log, an event or the audit."""

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.toolkit.http_server import bind, serve_app
from tests.gateway.running import SERVERS, Client, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-06")]

WORD = "watermelon"


class Upstream:
    """A remote MCP server that keeps everything that it receives."""

    def __init__(self) -> None:
        self.received: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        body = message.get("body", b"")
        self.received.append(f"{scope['headers']} {body!r}")
        request: Any = json.loads(body or b"{}")
        match request.get("method"):
            case "initialize":
                info = {"name": "remote", "version": "1"}
                result: Any = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            case "tools/list":
                result = {"tools": [{"name": "ping", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "pong"}]}
            case _:
                await send({"type": "http.response.start", "status": 202, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def running_upstream() -> AsyncIterator[tuple[Upstream, str]]:
    upstream, sock = Upstream(), bind("127.0.0.1", 0)
    async with serve_app(upstream, sock):
        yield upstream, f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"


async def test_no_server_sees_the_token(tmp_path: Path):
    async with running_upstream() as (upstream, url):
        servers: Mapping[str, Mapping[str, object]] = {**SERVERS, "remote": {"url": url}}
        async with running_gateway(tmp_path, servers=servers) as running:
            token = running.token()
            async with Client(running.url, token) as client:
                answer = await client.call("remote__ping")
                given = await client.call("counter__given")

    secret = token.split("_", 2)[2]
    assert answer["content"][0]["text"] == "pong"
    assert [text for text in upstream.received if secret in text] == []
    assert secret not in json.dumps(given)


async def test_control_a_proxy_that_forwards_the_headers_hands_the_token_over():
    async with running_upstream() as (upstream, url), httpx.AsyncClient(trust_env=False) as proxy:
        headers = {"Authorization": "Bearer hft_abc_secret", "Accept": "application/json"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        await proxy.post(url, json=request, headers=headers)

    assert "hft_abc_secret" in upstream.received[0]


async def test_the_token_is_masked_wherever_a_client_puts_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG):
        async with running_gateway(tmp_path, {"HOLDFAST_AUDIT_ARGUMENTS": "true"}) as running:
            token = running.token()
            async with Client(running.url, token) as client:
                for text in (token, WORD):
                    await client.call("repeat", text=text)
                    await client.post(f"tools/{text}")
                    await client.post("tools/list", headers={"Host": f"{text}.example"})
    kept = b"".join(file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file())
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)

    secret = token.split("_", 2)[2]
    assert (secret.encode() in kept, secret in logged) == (False, False)
    assert WORD.encode() in kept  # control: other texts are kept
