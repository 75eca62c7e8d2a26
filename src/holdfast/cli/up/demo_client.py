"""The MCP clients of `holdfast up --demo`: plain handshake-era clients over HTTP."""

import json
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from holdfast.model.worker_threads import WorkerThreads

_VERSION = "2025-11-25"
_SECONDS = 60.0
_threads = WorkerThreads("demo", threads=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a call."""

    ok: bool
    fields: dict[str, Any]
    """The structured content."""
    texts: list[str]
    """The texts in the content."""

    @property
    def error(self) -> str:
        """The code and the message of a failure."""
        found = [str(self.fields[key]) for key in ("code", "error") if key in self.fields]
        return ": ".join(found) or " ".join(self.texts)


class DemoClient:
    """One client with its token. Call `connect` first."""

    def __init__(self, url: str, token: str, name: str) -> None:
        self._url = urlsplit(url)
        self._name = name
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._next_id = 0

    async def connect(self) -> None:
        """Send `initialize`, and keep the session that the gateway opens."""
        info = {"name": self._name, "version": "1.0"}
        params = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": info}
        await self._request("initialize", params)
        self._headers["Mcp-Protocol-Version"] = _VERSION
        await _threads.run(self._send, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, **arguments: object) -> "Answer":
        result = await self._request("tools/call", {"name": tool, "arguments": arguments})
        return Answer(
            ok=not result.get("isError", False),
            fields=result.get("structuredContent") or {},
            texts=[block.get("text", "") for block in result.get("content", [])],
        )

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result. An error is returned as the result of a failed call."""
        self._next_id += 1
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        answer = await _threads.run(self._send, message)
        if "error" in answer:
            return {"isError": True, "content": [{"type": "text", "text": answer["error"]["message"]}]}
        return answer["result"]

    def _send(self, message: dict[str, Any]) -> Any:
        with closing(
            HTTPConnection(self._url.hostname or "", self._url.port, timeout=_SECONDS)
        ) as connection:
            connection.request("POST", self._url.path, json.dumps(message), self._headers)
            response = connection.getresponse()
            body = response.read().decode()
        if (session := response.headers.get("Mcp-Session-Id")) is not None:
            self._headers["Mcp-Session-Id"] = session
        if response.headers.get("Content-Type") == "text/event-stream":
            events = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
            body = events[-1]  # earlier events are notifications
        return json.loads(body) if body else {}
