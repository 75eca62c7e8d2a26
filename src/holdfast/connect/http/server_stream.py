"""The stream on which a server of the handshake era sends messages without a request."""

import asyncio
import logging
from dataclasses import dataclass

from holdfast.connect.http.endpoint import EVENT_STREAM, Endpoint
from holdfast.connect.http.event_stream import StreamPosition, read_messages
from holdfast.connect.http.in_flight import InFlight
from holdfast.connect.http.outgoing import VERSION
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

SESSION_ID = "Mcp-Session-Id"
MAX_RESUMES = 2
"""How often a stream that ended early is resumed before the server counts as gone."""


@dataclass(slots=True)
class SessionHeaders:
    """The server's session id and the protocol version of a handshake; both are empty in the modern era."""

    session_id: str = ""
    version: str = ""

    def headers(self, position: StreamPosition | None = None) -> dict[str, str]:
        """The headers of each request; with a position, those that resume a stream there."""
        headers = {"accept": EVENT_STREAM}
        if self.session_id:
            headers[SESSION_ID] = self.session_id
        if self.version:
            headers[VERSION] = self.version
        if position is not None and position.event_id:
            headers["Last-Event-ID"] = position.event_id
        return headers


async def read_server_stream(
    peer: Peer, endpoint: Endpoint, session: SessionHeaders, in_flight: InFlight, limits: Limits
) -> None:
    """Keep the stream open, if the server has one. The link fails if the server is gone or forgot the session."""
    position, failures = StreamPosition(), 0
    while True:
        try:
            async with endpoint.request("GET", headers=session.headers(position)) as response:
                if response.status == 404:
                    raise HoldfastError(
                        codes.CONNECTION_CLOSED, f"{endpoint.display_url} has forgotten the session."
                    )
                if not response.is_success or response.media_type != EVENT_STREAM:
                    return
                failures = 0
                async for message in read_messages(response, position, limits):
                    await in_flight.wait_for_room(message)
                    peer.message_received(message)
        except HoldfastError as error:
            if error.code is not codes.CONNECTION_CLOSED:
                log.warning(
                    "server stream failed", extra={"url": endpoint.display_url, "reason": error.message}
                )
                return
            failures += 1
            if failures > MAX_RESUMES:
                in_flight.fail(error)
                return
        await asyncio.sleep(position.retry_seconds)
