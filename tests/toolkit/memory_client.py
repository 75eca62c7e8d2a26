"""Clients of a box in this process, over the real wire, in both eras. Each request can come from another session."""

import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.model.context import SessionContext, context_meta
from holdfast.toolkit import Toolbox
from holdfast.toolkit.authentication import Authenticator, MetaAuthenticator
from holdfast.toolkit.tool_server import ToolServer
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.messages import Notification, PeerError, Request
from holdfast.wire.peer import Peer
from tests.toolkit.clients import MODERN_META, VERSIONS, Era

Answer = Callable[[str, Any], Any]
ALL_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class MemoryClient:
    """A client that answers the server's requests with `answer`, and keeps its notifications."""

    def __init__(self, era: Era, capabilities: dict[str, Any], answer: Answer | None) -> None:
        self.era: Era = era
        self.capabilities = capabilities
        self.notifications: list[tuple[str, Any]] = []
        self.rounds = 0
        self._answer = answer
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self.peer = Peer(on_request=self._on_request, on_notification=self._on_notification)

    async def _on_request(self, request: Request) -> Any:
        assert self._answer is not None, request.method
        answered: Any = self._answer(request.method, json.loads(bytes(request.params)))
        return await answered if inspect.isawaitable(answered) else answered

    def _on_notification(self, notification: Notification) -> None:
        self.notifications.append((notification.method, json.loads(bytes(notification.params))))

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        session: SessionContext | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """The result; raises `PeerError`. A modern client does not answer input requests here."""
        all_meta = {
            **(self._modern_meta() if self.era == "modern" else {}),
            **(context_meta(session) if session else {}),
            **(meta or {}),
        }
        raw = await self.peer.request(method, {**(params or {}), "_meta": all_meta})
        return json.loads(bytes(raw))

    async def complete(
        self, method: str, params: dict[str, Any], *, session: SessionContext | None = None
    ) -> Any:
        """The result, after answering all input requests."""
        result = await self.request(method, params, session=session)
        while result.get("resultType") == "input_required":
            self.rounds += 1
            assert self._answer is not None
            answers = {
                key: self._answer(asked["method"], asked["params"])
                for key, asked in result["inputRequests"].items()
            }
            more = {"inputResponses": answers, "requestState": result["requestState"]}
            result = await self.request(method, {**params, **more}, session=session)
        return result

    async def call(self, tool: str, session: SessionContext | None = None, **arguments: Any) -> Any:
        """The envelope of a call."""
        result = await self.complete("tools/call", {"name": tool, "arguments": arguments}, session=session)
        return result["structuredContent"]

    async def error(
        self, method: str, params: dict[str, Any], *, session: SessionContext | None = None
    ) -> tuple[int, Any]:
        """The code and the data of the error that answers a request."""
        try:
            result = await self.complete(method, params, session=session)
        except PeerError as error:
            return error.rpc_code, json.loads(bytes(error.data)) if error.data else None
        raise AssertionError(result)

    async def initialize(self) -> Any:
        if self.era == "modern":
            return await self.request("server/discover")
        offer = {"protocolVersion": VERSIONS["handshake"], "capabilities": self.capabilities}
        raw = await self.peer.request(
            "initialize", {**offer, "clientInfo": {"name": "tests", "version": "1"}}
        )
        return json.loads(bytes(raw))

    def _modern_meta(self) -> dict[str, Any]:
        return {**MODERN_META, "io.modelcontextprotocol/clientCapabilities": self.capabilities}


@asynccontextmanager
async def connect(
    box: Toolbox | ToolServer,
    era: Era,
    *,
    capabilities: dict[str, Any] | None = None,
    answer: Answer | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[MemoryClient]:
    """Connect a client to a box, whose server ends with the block; or to a server, which goes on."""
    server = box if isinstance(box, ToolServer) else box.server(authenticator or MetaAuthenticator())
    declared = (ALL_CAPABILITIES if answer else {}) if capabilities is None else capabilities
    client = MemoryClient(era, declared, answer)
    try:
        async with connect_memory(client.peer, server_peer(server)):
            await client.initialize()
            yield client
    finally:
        if server is not box:
            await server.close()
