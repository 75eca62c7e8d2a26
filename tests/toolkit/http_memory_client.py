"""A client of an ASGI application in this process, in both eras, that can answer requests of the server."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

from holdfast.wire.http import HttpApp
from tests.toolkit.clients import MODERN_META, VERSIONS, mcp_headers
from tests.wire.test_http import Client as AsgiClient
from tests.wire.test_http import RecordedResponse


class HttpMemoryClient:
    """Sends messages to an application."""

    def __init__(self, app: HttpApp, headers: dict[str, str] | None = None) -> None:
        self._asgi = AsgiClient(app)
        self._headers = headers or {}
        self._ids = itertools.count(1)

    async def open_session(self, capabilities: dict[str, Any] | None = None) -> str:
        """Send `initialize`, and return the `Mcp-Session-Id`."""
        offer: dict[str, Any] = {"protocolVersion": VERSIONS["handshake"], "capabilities": capabilities or {}}
        response = await self.send(self.message("initialize", offer))
        return response.headers["mcp-session-id"]

    async def send(self, message: dict[str, Any], session: str = "") -> RecordedResponse:
        response = RecordedResponse()
        await self.start(message, session, response)
        return response

    def start(self, message: dict[str, Any], session: str, response: RecordedResponse) -> Any:
        """Begin to send a message; the response is filled in while it arrives."""
        headers = {
            **mcp_headers(message),
            **self._headers,
            **({"mcp-session-id": session} if session else {}),
        }
        return self._asgi.start("POST", json.dumps(message).encode(), headers, "/mcp", response)

    def listen(self, session: str, response: RecordedResponse) -> Any:
        """Open the GET stream of a session."""
        headers = {"mcp-session-id": session, "accept": "text/event-stream", **self._headers}
        return self._asgi.start("GET", b"", headers, "/mcp", response)

    def disconnect(self) -> None:
        self._asgi.disconnect.set()

    def message(self, method: str, params: dict[str, Any], *, era: str = "handshake") -> dict[str, Any]:
        meta = {"_meta": MODERN_META} if era == "modern" else {}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, **meta}}

    async def call(self, tool: str, session: str = "") -> Any:
        """The envelope of a call: of a handshake-era client if there is a session, else of a modern one."""
        params: dict[str, Any] = {"name": tool, "arguments": {}}
        message = self.message("tools/call", params, era="handshake" if session else "modern")
        response = await self.send(message, session)
        answer = response.events[-1] if response.events else response.json
        return answer["result"]["structuredContent"]


async def wait_for(response: RecordedResponse, found: Callable[[list[Any]], bool]) -> list[Any]:
    """Wait until the events of a stream are as wanted."""
    while not found(response.events):
        response.changed.clear()
        async with asyncio.timeout(20):
            await response.changed.wait()
    return response.events
