"""Connect to a first-party server in this very process: the same protocol, without a pipe."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.greeted import greeted
from holdfast.connect.hearing import Hearing
from holdfast.connect.terms import Terms
from holdfast.model.context import SessionContext
from holdfast.model.ports import Door
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import Service, server_peer
from holdfast.wire.memory import joined
from holdfast.wire.peer import Peer

MakeService: TypeAlias = Callable[[SessionContext, Door | None], Service]
"""Makes a server for one session: whose it is, and the door it may ask favours of."""


@asynccontextmanager
async def open_in_process(
    spec: ServerSpec, service: Service, *, asks: Asks, terms: Terms
) -> AsyncIterator[Connection]:
    """Greet the service. It was made for this session, so no request needs to say whose it is."""
    hearing = Hearing(asks)
    peer = Peer(handle=hearing.answer, notice=hearing.hear, limits=terms.limits)
    async with joined(peer, server_peer(service, limits=terms.limits)):
        client = await greeted(spec, peer, asks=asks, meta={}, terms=terms, likely=Era.MODERN)
        yield Connection(client, ended=peer.ended, hearing=hearing, last_words=str)
