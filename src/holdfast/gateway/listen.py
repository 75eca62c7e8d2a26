"""Subscribe a client to resources, and to changes of lists, at the servers that announce them."""

import msgspec

from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.offer import Offer
from holdfast.gateway.subscriptions import MAX_PARAMS_BYTES, ListenParams, SubscriptionStream
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Id, Raw


async def listen(
    client_session: ClientSession, offer: Offer, request_id: Id, members: dict[str, Raw], call: ClientCall
) -> object:
    """Answer `subscriptions/listen` of a modern client. The stream is open until the session ends or the client hangs up."""
    wanted = _read_params(client_session, members)
    servers = await offer.servers_with_capability("resources", "subscribe")
    uris = wanted.uris if servers else ()
    stream = SubscriptionStream(request_id, call, await _announced(offer, wanted.lists), uris)
    client_session.subscriptions.open(stream)
    client_session.open_streams += 1
    watched: list[tuple[str, str]] = []
    try:
        for uri in uris:
            server = await server_to_watch(offer, uri)
            if server is not None:
                await client_session.watches.add(offer.session, server, offer.era_of(server), uri)
                watched.append((server, uri))
        stream.acknowledge()
        await client_session.subscriptions.closed.wait()
    finally:
        client_session.open_streams -= 1
        client_session.subscriptions.remove(stream)
        for server, uri in watched:
            client_session.watches.remove(offer.session, server, offer.era_of(server), uri)
    return stream.result


async def server_to_watch(offer: Offer, uri: str) -> str | None:
    """The server at which to subscribe to this resource; None if there is none."""
    supporting = await offer.servers_with_capability("resources", "subscribe")
    return next((server for server in await offer.servers_of_resource(uri) if server in supporting), None)


def _read_params(client_session: ClientSession, members: dict[str, Raw]) -> ListenParams:
    if sum(map(len, members.values())) > MAX_PARAMS_BYTES:
        raise client_session.refuse(
            HoldfastError(codes.TOO_LARGE, f"The params have more than {MAX_PARAMS_BYTES} bytes.")
        )
    try:
        return msgspec.json.decode(msgspec.json.encode(members), type=ListenParams)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"The params are invalid: {error}.") from None


async def _announced(offer: Offer, lists: frozenset[str]) -> frozenset[str]:
    """The lists among these whose changes are announced: by a server, or for tools by the session itself."""
    announced: set[str] = set()
    for name in lists:
        if name == "tools" or await offer.servers_with_capability(name, "listChanged"):
            announced.add(name)
    return frozenset(announced)
