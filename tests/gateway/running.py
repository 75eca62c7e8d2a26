"""A gateway in this process, served over real HTTP, and a small MCP client for it."""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from holdfast import settings
from holdfast.gateway.client_tokens import TOKENS_FOLDER, Tokens
from holdfast.gateway.credential import Credential
from holdfast.gateway.open_gateway import Gateway, open_gateway
from holdfast.gateway.options import GatewayOptions, SessionSummary
from holdfast.host.host import Host
from holdfast.model.permission import Mode
from holdfast.toolkit.http_server import ConnectionLimits, bind, serve_app

COUNTER = Path(__file__).parent / "counter_server.py"
SERVERS = {"counter": {"command": sys.executable, "args": [str(COUNTER)], "trust_level": "sandboxed"}}
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
ACCEPT = "application/json, text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGateway:
    url: str
    host: Host
    gateway: Gateway
    tokens: Tokens
    ends: list[str]
    """Why sessions have ended."""

    def token(self, name: str = "client", *, mode: Mode = Mode.AUTO, **limits_of_token: Any) -> str:
        """A new token; by default, its sessions run in the mode `auto`."""
        return self.tokens.create(Credential(id="", name=name, mode=mode, **limits_of_token))[0]

    async def denied(self) -> list[str]:
        """The reasons of the refused requests in the audit, in order."""
        rows = await self.host.store.read(lambda tx: [row.body for row in tx.audit_rows()])
        return [body for body in rows if '"kind":"denied"' in body]


@asynccontextmanager
async def running_gateway(
    folder: Path,
    environ: Mapping[str, str] | None = None,
    *,
    local: Credential | None = None,
    servers: Mapping[str, Mapping[str, object]] = SERVERS,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[RunningGateway]:
    """A gateway with the counter server, on a free port of loopback."""
    project, data = folder / "project", folder / "data"
    project.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    own = {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_SERVERS_USER_FILE": str(data / "mcp.json")}
    loaded = settings.load(environ={**kept, **own, **(environ or {})})
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    ends: list[str] = []

    def on_change(line: SessionSummary) -> None:
        if line.ended:
            ends.append(line.ended)

    async with (
        Host(settings=loaded, servers=servers) as host,
        open_gateway(host, GatewayOptions(cwd=project, on_change=on_change), local=local) as gateway,
        serve_app(gateway.asgi, sock, limits),
    ):
        tokens = Tokens(loaded.data_dir / TOKENS_FOLDER)
        yield RunningGateway(url=url, host=host, gateway=gateway, tokens=tokens, ends=ends)


class Client:
    """A handshake-era client. `async with Client(url, token) as client` sends `initialize`."""

    def __init__(self, url: str, token: str | None, headers: Mapping[str, str] | None = None) -> None:
        authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(
            headers={"Accept": ACCEPT, **authorization, **(headers or {})}, timeout=60, trust_env=False
        )
        self.url = url
        self.session_id = ""
        self._next_id = 0

    async def __aenter__(self) -> Self:
        answer = await self.initialize()
        assert answer.status_code == 200, answer.text
        self.session_id = answer.headers["mcp-session-id"]
        self.http.headers.update({"Mcp-Session-Id": self.session_id, "Mcp-Protocol-Version": HANDSHAKE})
        await self.http.post(self.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def initialize(self) -> httpx.Response:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": info}
        return await self.post("initialize", params)

    async def post(self, method: str, params: Any = None, **options: Any) -> httpx.Response:
        self._next_id += 1
        given: Any = {} if params is None else params
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": given}
        return await self.http.post(self.url, json=message, **options)

    async def call(self, tool: str, **arguments: object) -> Any:
        """The structured content of a tool's answer, or the whole error."""
        answer = await self.post("tools/call", {"name": tool, "arguments": arguments})
        found = read_answer(answer)
        return found["result"].get("structuredContent", found["result"]) if "result" in found else found


async def try_to_open(
    url: str, token: str | None, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """The answer to `initialize`, on a connection of its own."""
    client = Client(url, token, headers)
    try:
        return await client.initialize()
    finally:
        await client.http.aclose()


def modern_call(tool: str, **arguments: object) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of a modern-era `tools/call`."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool, "Accept": ACCEPT}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


async def post_modern(
    url: str, token: str, body: dict[str, Any], headers: Mapping[str, str]
) -> httpx.Response:
    """Send a modern-era request on a connection of its own."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.post(url, json=body, headers={**headers, "Authorization": f"Bearer {token}"})


def read_answer(answer: httpx.Response) -> Any:
    """The last message of an answer, which is JSON or an event stream."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return json.loads([row for row in answer.text.splitlines() if row.startswith("data: {")][-1][6:])
    return answer.json()
