"""A handshake-era client of the gateway that answers the questions of its session: yes to all, and every folder as a root."""

import json
from typing import Any

import httpx

from tests.gateway.running import HANDSHAKE, Client


class AskingClient(Client):
    """Collects what it was asked in `asked`."""

    async def initialize(self) -> httpx.Response:
        self.asked: list[dict[str, Any]] = []
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {}}
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": info}
        return await self.post("initialize", params)

    async def send(self, tool: str, arguments: object, **more: object) -> Any:
        """Call a tool with further params. Return what the server says it got, or the whole answer."""
        self._next_id += 1
        params = {"name": tool, "arguments": arguments, **more}
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": "tools/call", "params": params}
        async with self.http.stream("POST", self.url, json=request) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                return _read(json.loads(await response.aread()))
            async for row in response.aiter_lines():
                message: dict[str, Any] = json.loads(row[6:]) if row.startswith("data: {") else {}
                if "method" in message and "id" in message:
                    self.asked.append(message)
                    result = _answer(message["method"], message.get("params", {}))
                    await self.http.post(
                        self.url, json={"jsonrpc": "2.0", "id": message["id"], "result": result}
                    )
                elif message.get("id") == request["id"]:
                    return _read(message)
        raise AssertionError("The stream ended without an answer.")


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "roots/list":
        return {"roots": [{"uri": "file:///"}]}
    fields = params.get("requestedSchema", {}).get("properties", {})
    content = {"decision": "allow_once"} if "decision" in fields else {"ok": True}
    return {"action": "accept", "content": content}


def _read(message: dict[str, Any]) -> Any:
    try:
        return json.loads(message["result"]["content"][0]["text"])
    except (KeyError, IndexError, json.JSONDecodeError):
        return message
