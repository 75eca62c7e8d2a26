"""The gateway on standard input and output, for one client: the `command` of the client's configuration starts it."""

import asyncio
from typing import Any

from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.credential import Credential
from holdfast.gateway.options import GatewayOptions
from holdfast.gateway.parked_calls import ModernCall
from holdfast.gateway.request_handler import RequestHandler
from holdfast.gateway.signed_state import StateSigner
from holdfast.host.host import Host
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.wire.mcp.eras import VERSION_KEY, Era
from holdfast.wire.mcp.server import (
    BackChannel,
    ClientInfo,
    initialize_result,
    modern_client,
    no_client_info,
    read_client,
    read_meta,
)
from holdfast.wire.messages import EMPTY_OBJECT, Notification, Request
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_stdio

_GRACE_SECONDS = 2.0  # how long running requests may take after the client has closed its output


async def serve_stdio(host: Host, credential: Credential, options: GatewayOptions) -> None:
    """Serve one client until it closes its output, or until this is cancelled."""
    client = StdioClient(host, credential, options)
    try:
        async with connect_stdio(client.peer, grace=_GRACE_SECONDS):
            await client.peer.ended.wait()
    finally:
        await client.close()


class StdioClient:
    """The client on the other side of a pipe. In each era that it uses, it has one session."""

    def __init__(self, host: Host, credential: Credential, options: GatewayOptions) -> None:
        self._host = host
        self._credential = credential
        self._options = options
        self._signer = StateSigner()
        self._handlers: dict[Era, RequestHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.peer = Peer(
            on_request=self._answer,
            on_notification=self._on_notification,
            limits=options.limits or DEFAULT_LIMITS,
            answers_malformed=True,
        )
        self._channel = BackChannel(self.peer.notify, self.peer.request, self.peer.notify)

    async def close(self) -> None:
        """End the sessions, with their own servers."""
        for task in self._tasks:
            task.cancel()
        for handler in self._handlers.values():
            await handler.client_session.close("the client closed the connection")

    async def _answer(self, request: Request) -> Any:
        """Answer one request, in the session of the request's era."""
        meta = read_meta(request.params)
        if VERSION_KEY in meta:
            client_info = modern_client(meta)
            call: ClientCall = ModernCall(meta, client_info, BackChannel(self.peer.notify))
            handler = self._handlers.get(Era.MODERN) or self._open(client_info)
            return await handler.answer(request.id, request.method, request.params, call)
        if request.method == "ping":
            return EMPTY_OBJECT
        if request.method == "initialize":
            return await self._initialize(read_client(request))
        handler = self._handlers.get(Era.HANDSHAKE)
        if handler is None:
            raise no_client_info()
        call = ClientCall(meta, handler.client_session.client_info, self._channel)
        return await handler.answer(request.id, request.method, request.params, call)

    async def _initialize(self, client_info: ClientInfo) -> Any:
        """Open a session in place of the one that the client has."""
        # The new session is in `_handlers` before the old one is closed. So none is lost if the client sends `initialize` many times.
        old = self._handlers.pop(Era.HANDSHAKE, None)
        handler = self._open(client_info)
        if old is not None:
            await old.client_session.close("the client sent initialize again")
        return initialize_result(client_info, await handler.info())

    def _open(self, client_info: ClientInfo) -> RequestHandler:
        session = ClientSession(self._host, self._credential, self._options, client_info, "stdio")
        if client_info.era is Era.HANDSHAKE:
            session.back_channel = self._channel
        handler = self._handlers[client_info.era] = RequestHandler(session, self._signer)
        return handler

    def _on_notification(self, notification: Notification) -> None:
        handler = self._handlers.get(Era.HANDSHAKE)
        if handler is not None:
            task = asyncio.create_task(handler.notify(notification))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
