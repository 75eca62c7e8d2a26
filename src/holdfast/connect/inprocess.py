"""Connect to a built-in server in this process: the same protocol, over memory instead of a pipe."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.handshake import handshake
from holdfast.connect.notifications import Notifications
from holdfast.connect.server_requests import ServerRequests
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import Service, server_peer
from holdfast.wire.memory import connect_memory
from holdfast.wire.peer import Peer

MakeService: TypeAlias = Callable[[SessionContext, Door | None, Sequence[str]], Service]
"""Makes a server for one session, from its context, its front door, and the folders that it may not change."""


@asynccontextmanager
async def open_in_process(
    spec: ServerSpec, service: Service, *, server_requests: ServerRequests, options: ConnectOptions
) -> AsyncIterator[Connection]:
    """Connect to the service. It was made for one session, so requests carry no context."""
    notifications = Notifications(server_requests)
    peer = Peer(on_request=notifications.answer, on_notification=notifications.receive, limits=options.limits)
    async with connect_memory(peer, server_peer(service, limits=options.limits)):
        client = await handshake(
            spec, peer, server_requests=server_requests, meta={}, options=options, likely_era=Era.MODERN
        )
        yield Connection(client, ended=peer.ended, notifications=notifications)
