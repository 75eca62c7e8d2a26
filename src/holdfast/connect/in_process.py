"""Connects to a server in this process: MCP over memory instead of a pipe."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.negotiate import negotiate
from holdfast.connect.server_messages import ServerMessages
from holdfast.connect.server_requests import ServerRequests
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.server import ServerSpec
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import Service, server_peer
from holdfast.wire.peer import Peer

MakeService: TypeAlias = Callable[[SessionContext, Door | None], Service]
"""Makes a server for one session."""


@asynccontextmanager
async def open_in_process(
    spec: ServerSpec, service: Service, *, server_requests: ServerRequests, options: ConnectOptions
) -> AsyncIterator[Connection]:
    """Connect to a service that was made for one session."""
    server_messages = ServerMessages(server_requests)
    peer = Peer(
        on_request=server_messages.answer,
        on_notification=server_messages.receive,
        limits=options.limits,
        throttle=server_requests.throttle,
    )
    service_peer = server_peer(service, limits=options.limits, throttle=server_requests.throttle)
    async with connect_memory(peer, service_peer):
        client = await negotiate(
            spec, peer, server_requests=server_requests, meta={}, options=options, likely_era=Era.MODERN
        )
        yield Connection(client, ended=peer.ended, server_messages=server_messages)


@asynccontextmanager
async def open_app_service(
    spec: ServerSpec,
    service_manager: AbstractAsyncContextManager[Service],
    *,
    server_requests: ServerRequests,
    options: ConnectOptions,
) -> AsyncIterator[Connection]:
    """Open an application's toolbox, and connect to it."""
    async with (
        service_manager as service,
        open_in_process(spec, service, server_requests=server_requests, options=options) as connection,
    ):
        yield connection
