"""The first exchange with a server: versions, capabilities, context."""

from holdfast import __version__
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.server_requests import ServerRequests
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp import client as mcp_client
from holdfast.wire.mcp.eras import Era, Implementation, PeerInfo
from holdfast.wire.peer import Peer

CLIENT_INFO = Implementation("holdfast", __version__, "Holdfast")


async def negotiate(
    spec: ServerSpec,
    peer: Peer,
    *,
    server_requests: ServerRequests,
    meta: JsonObject,
    options: ConnectOptions,
    likely_era: Era | None = None,
) -> mcp_client.Client:
    """Agree with the server on an era, version and capabilities. Remember the era in `options.eras`.

    First try the era that the server used last time, or else `likely_era`.
    """
    client_info = PeerInfo(implementation=CLIENT_INFO, capabilities=server_requests.capabilities, meta=meta)
    key = f"{spec.name} {spec.digest}"
    era = options.eras.get(key, likely_era)
    client = await mcp_client.negotiate(
        peer, client_info, era=era, timeout=options.connect_seconds, limits=options.limits
    )
    options.eras[key] = client.server_info.era
    return client
