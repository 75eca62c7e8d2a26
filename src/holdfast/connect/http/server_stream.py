"""The stream on which a server of the handshake era sends its own requests and notifications."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from holdfast.connect.http.endpoint import EVENT_STREAM, Endpoint
from holdfast.connect.http.event_stream import StreamPosition, read_messages
from holdfast.connect.http.link_tasks import LinkTasks
from holdfast.connect.http.outgoing_message import VERSION_HEADER
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

SESSION_ID_HEADER = "Mcp-Session-Id"
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 5.0
_LONG_SECONDS = 10.0  # if a stream was open for longer than this, the next pause is short again
MAX_RESUMES = 2
"""How many failed attempts in a row to resume a stream are tolerated."""


@dataclass(slots=True)
class McpSessionHeaders:
    """The MCP session's id and the protocol version that the server chose in the handshake. Both are empty in the modern era."""

    session_id: str = ""
    version: str = ""

    def headers(self, position: StreamPosition | None = None) -> dict[str, str]:
        """The headers of each request. With a position, they ask the server to resume the stream after it."""
        headers = {"accept": EVENT_STREAM}
        if self.session_id:
            headers[SESSION_ID_HEADER] = self.session_id
        if self.version:
            headers[VERSION_HEADER] = self.version
        if position is not None and position.event_id:
            headers["Last-Event-ID"] = position.event_id
        return headers


class ResumePauses:
    """The pauses before a stream is requested again. They grow if the server ends each stream soon."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._pause = _MIN_PAUSE_SECONDS / 2  # doubled by the first `next`

    def next(self, position: StreamPosition) -> float:
        """How many seconds to wait. The server may ask for a longer pause, but not for a shorter one."""
        now = self._clock()
        is_long = now - self._began > _LONG_SECONDS
        self._pause = _MIN_PAUSE_SECONDS if is_long else min(2 * self._pause, _MAX_PAUSE_SECONDS)
        seconds = max(self._pause, position.retry_seconds)
        self._began = now + seconds
        return seconds


async def read_server_stream(
    peer: Peer, endpoint: Endpoint, mcp_session: McpSessionHeaders, link_tasks: LinkTasks, limits: Limits
) -> None:
    """If the server has such a stream, read it, and request it again each time it ends.

    If the server cannot be reached or has ended its MCP session, fail the link.
    """
    position, failures = StreamPosition(), 0
    pauses = ResumePauses()
    while True:
        try:
            async with endpoint.request("GET", headers=mcp_session.headers(position)) as response:
                if response.status == 404:
                    raise HoldfastError(
                        codes.CONNECTION_CLOSED,
                        f"{endpoint.display_url} has ended its own MCP session (Mcp-Session-Id).",
                    )
                if not response.is_success or response.media_type != EVENT_STREAM:
                    return
                failures = 0
                async for message in read_messages(response, position, limits, link_tasks.throttle):
                    await link_tasks.wait_for_capacity(message)
                    peer.message_received(message)
        except HoldfastError as error:
            if error.code is not codes.CONNECTION_CLOSED:
                log.warning(
                    "server stream failed", extra={"url": endpoint.display_url, "reason": error.message}
                )
                return
            failures += 1
            if failures > MAX_RESUMES:
                link_tasks.fail(error)
                return
        await asyncio.sleep(pauses.next(position))
