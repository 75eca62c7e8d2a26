"""What a server says unasked over HTTP, on a stream of its own."""

import asyncio
import logging
from dataclasses import dataclass

from holdfast.connect.endpoint import EVENTS, Endpoint
from holdfast.connect.errands import Errands
from holdfast.connect.incoming import Place, messages
from holdfast.connect.outgoing import VERSION
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

SESSION = "Mcp-Session-Id"
TRIES = 2  # to take up a stream that broke off


@dataclass(slots=True)
class Standing:
    """What a handshake agreed on; in the modern era there is none."""

    session: str = ""
    version: str = ""

    def headers(self, place: Place | None = None) -> dict[str, str]:
        """What each request repeats of it; with a place, where to go on from."""
        headers = {"accept": EVENTS}
        if self.session:
            headers[SESSION] = self.session
        if self.version:
            headers[VERSION] = self.version
        if place is not None and place.event_id:
            headers["Last-Event-ID"] = place.event_id
        return headers


async def listen(
    peer: Peer, endpoint: Endpoint, standing: Standing, errands: Errands, limits: Limits
) -> None:
    """Keep the server's own stream open, where it has one; a server that is gone, or forgot us, is noticed here."""
    place, tries = Place(), 0
    while True:
        try:
            async with endpoint.ask("GET", headers=standing.headers(place)) as reply:
                if reply.status == 404:
                    raise HoldfastError(
                        codes.CONNECTION_CLOSED, f"{endpoint.place} has forgotten the session."
                    )
                if not reply.is_success or reply.kind != EVENTS:
                    return
                tries = 0
                async for message in messages(reply, place, limits):
                    await errands.room(message)
                    peer.heard(message)
        except HoldfastError as error:
            if error.code is not codes.CONNECTION_CLOSED:
                log.warning("stream not heard", extra={"place": endpoint.place, "reason": error.message})
                return
            tries += 1
            if tries > TRIES:
                errands.gone(error)
                return
        await asyncio.sleep(place.retry_seconds)
