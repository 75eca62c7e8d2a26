"""A gateway over HTTP, with the counter server behind it, and clients for it."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.gateway import Credential, GatewayOptions, app
from holdfast.gateway.gateway_app import GatewayApp
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.toolkit.http_server import bind, serve_app
from holdfast.wire.mcp.eras import CAPABILITIES_KEY, CLIENT_KEY, VERSION_KEY
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["counter_entry", "make_host"]


@dataclass(slots=True)
class Served:
    """A running gateway."""

    url: str
    app: GatewayApp
    host: Host
    ends: list[str] = field(default_factory=list[str])

    def at(self, handle: str) -> str:
        return self.url.replace("/mcp", f"/s/{handle}/mcp")


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve(make_host: HostFactory, tmp_path: Path) -> Serve:
    """Serves a gateway in front of these servers. The credential is the request's bearer token."""
    folder = tmp_path / "project"
    folder.mkdir()

    @asynccontextmanager
    async def serve_gateway(
        servers: dict[str, Any],
        *,
        mode: Mode = Mode.AUTO,
        credential: Credential | None = None,
        **options: Any,
    ) -> AsyncIterator[Served]:
        def authenticate(headers: Mapping[str, str], client_address: str) -> Credential:
            token = headers.get("authorization", "Bearer anyone").removeprefix("Bearer ")
            if token == "revoked":
                raise HoldfastError(codes.UNAUTHENTICATED, "No valid token.")
            return credential or Credential(id=token, mode=mode)

        ends: list[str] = []
        async with make_host(servers) as host:
            gateway = app(
                host,
                authenticate=authenticate,
                options=GatewayOptions(
                    cwd=folder,
                    on_change=lambda line: ends.append(line.ended) if line.ended else None,
                    **options,
                ),
            )
            sock = bind("127.0.0.1", 0)
            async with serve_app(gateway, sock):
                url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
                try:
                    yield Served(url, gateway, host, ends)
                finally:
                    await gateway.close()

    return serve_gateway


class RawClient:
    """A client without an SDK. `token` is its credential."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str = "anyone") -> None:
        self._http = http
        self.url = url
        self.headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        self._next = 0

    async def initialize(self, **capabilities: Any) -> int:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        async with self.post("initialize", params) as response:
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
            return response.status

    def post(self, method: str, params: dict[str, Any], **headers: str) -> Any:
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        return self._http.post(
            self.url,
            data=json.dumps(message, ensure_ascii=False).encode(),
            headers={**self.headers, **headers},
        )

    def post_modern(self, method: str, params: dict[str, Any], **meta: Any) -> Any:
        own = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}, CLIENT_KEY: {"name": "raw", "version": "1"}}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = params["name"]
        return self.post(method, {**params, "_meta": {**own, **meta}}, **headers)

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Call a tool in the handshake era. Return the status, and the text of the result or the whole answer."""
        async with self.post("tools/call", {"name": tool, "arguments": arguments or {}}) as response:
            return response.status, _text(await response.json())

    async def call_modern(
        self, tool: str, arguments: dict[str, Any] | None = None, **meta: Any
    ) -> tuple[int, Any]:
        """Call a tool in the modern era. Return as `call` does."""
        params = {"name": tool, "arguments": arguments or {}}
        async with self.post_modern("tools/call", params, **meta) as response:
            return response.status, _text(await response.json())

    async def delete(self) -> int:
        async with self._http.delete(self.url, headers=self.headers) as response:
            return response.status


def _text(answer: Any) -> Any:
    try:
        return answer["result"]["content"][0]["text"]
    except (KeyError, IndexError):
        return answer.get("error", answer)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:
        yield session
