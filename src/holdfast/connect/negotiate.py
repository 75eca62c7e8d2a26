"""The first exchange with a server: its era, version and capabilities."""

from holdfast import __version__
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.server_requests import ServerRequests
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp import client as mcp_client
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo
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
    """Agree with the server on an era, version and capabilities.

    If the spec names an era, only that one is used. Otherwise the first try is the era that the server used last, or else that of
    the session's gateway client, or else `likely_era`. The last era is remembered, separately for gateway clients of each era.
    """
    client_info = OwnInfo(implementation=CLIENT_INFO, capabilities=server_requests.capabilities, meta=meta)
    key = f"{spec.name} {spec.digest}"
    relay = server_requests.relay
    if relay is not None:
        key = f"{relay.era} {key}"
    only = Era(spec.era) if spec.era else None
    try:
        client = await mcp_client.negotiate(
            peer,
            client_info,
            era=only or options.eras.get(key, relay.era if relay is not None else likely_era),
            only_this_era=only is not None,
            timeout=options.connect_seconds,
            limits=options.limits,
        )
    except HoldfastError as error:
        if error.code is not codes.TIMEOUT or not options.connect_setting:
            raise
        raise HoldfastError(
            codes.TIMEOUT,
            f"{error.message} If it needs more time, set {options.connect_setting} in the settings.",
        ) from None
    options.eras[key] = client.server_info.era
    return client
