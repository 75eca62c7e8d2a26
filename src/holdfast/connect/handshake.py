"""The first exchange with a server: versions, capabilities, context."""

from holdfast import __version__
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.server_requests import ServerRequests
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.client import Client, negotiate
from holdfast.wire.mcp.eras import Era, Implementation, PeerInfo
from holdfast.wire.peer import Peer

CLIENT_INFO = Implementation("holdfast", __version__, "Holdfast")


async def handshake(
    spec: ServerSpec,
    peer: Peer,
    *,
    server_requests: ServerRequests,
    meta: JsonObject,
    options: ConnectOptions,
    likely_era: Era | None = None,
) -> Client:
    """Negotiate with the server. Try the era that it used last time first, or else `likely_era`."""
    client_info = PeerInfo(implementation=CLIENT_INFO, capabilities=server_requests.capabilities, meta=meta)
    key = f"{spec.name} {spec.digest}"
    era = options.eras.get(key, likely_era)
    client = await negotiate(
        peer, client_info, era=era, timeout=options.connect_seconds, limits=options.limits
    )
    options.eras[key] = client.server_info.era
    return client
