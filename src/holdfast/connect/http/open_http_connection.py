"""Connects to a remote server over streamable HTTP or the deprecated SSE transport."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.http.endpoint import Endpoint
from holdfast.connect.http.sse import SseTransport
from holdfast.connect.http.streamable import HttpTransport
from holdfast.connect.negotiate import negotiate
from holdfast.connect.server_messages import ServerMessages
from holdfast.connect.server_requests import ServerRequests
from holdfast.connect.server_text import clean_server_text
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec, Sse
from holdfast.wire.mcp.eras import Era
from holdfast.wire.peer import Peer


@asynccontextmanager
async def open_http_connection(
    spec: ServerSpec,
    endpoint: Endpoint,
    *,
    server_requests: ServerRequests,
    meta: JsonObject,
    options: ConnectOptions,
) -> AsyncIterator[Connection]:
    """Connect over the transport of the spec, and negotiate with the server. On exit, end the MCP session."""
    is_sse = isinstance(spec.transport, Sse)
    server_messages = ServerMessages(server_requests)
    peer = Peer(
        on_request=server_messages.answer,
        on_notification=server_messages.receive,
        limits=options.limits,
        throttle=server_requests.throttle,
    )
    transport = (SseTransport if is_sse else HttpTransport)(peer, endpoint, options)
    peer.connection_made(transport)
    try:
        try:
            if isinstance(transport, SseTransport):
                await transport.open()
            client = await negotiate(
                spec,
                peer,
                server_requests=server_requests,
                meta=meta,
                options=options,
                likely_era=Era.HANDSHAKE if is_sse else None,
            )
        except HoldfastError as error:
            cause = transport.failure or error
            reason = clean_server_text(spec, cause.message)
            raise HoldfastError(
                cause.code, f"Could not connect to {spec.name!r}: {reason}", **cause.details
            ) from None
        if isinstance(transport, HttpTransport):
            transport.listen(client, server_requests)
        on_tools = transport.set_tools if isinstance(transport, HttpTransport) else None
        yield Connection(client, ended=peer.ended, server_messages=server_messages, on_tools=on_tools)
    finally:
        await peer.close()
