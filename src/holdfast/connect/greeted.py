"""Introduce ourselves to a server, and remember which era it lives in."""

from holdfast import __version__
from holdfast.connect.asks import Asks
from holdfast.connect.terms import Terms
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.client import Client, greet
from holdfast.wire.mcp.eras import Era, Implementation, Introduction
from holdfast.wire.peer import Peer

ME = Implementation("holdfast", __version__, "Holdfast")


async def greeted(
    spec: ServerSpec,
    peer: Peer,
    *,
    asks: Asks,
    meta: JsonObject,
    terms: Terms,
    likely: Era | None = None,
) -> Client:
    """Greet the server in the era it spoke last time; the first time, in the one that is likely."""
    me = Introduction(who=ME, capabilities=asks.capabilities, meta=meta)
    key = f"{spec.name} {spec.digest}"
    era = terms.eras.get(key, likely)
    client = await greet(peer, me, era=era, timeout=terms.connect_seconds, limits=terms.limits)
    terms.eras[key] = client.greeting.era
    return client
