"""The deprecated SSE transport: the server sends all its messages on one stream, and receives each message as a POST."""

import asyncio
import logging

from yarl import URL

from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.endpoint import EVENT_STREAM, Endpoint
from holdfast.connect.http.event_stream import StreamPosition, read_events, read_message
from holdfast.connect.http.link_tasks import MAX_POSTS, LinkTasks
from holdfast.connect.http.outgoing_message import OutgoingMessage, parse_outgoing
from holdfast.connect.http.param_headers import ParamHeaders
from holdfast.masking.urls import secrets_in_urls
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)


class SseTransport:
    """Carries a peer's messages. Each is sent as a POST, in its own task."""

    def __init__(self, peer: Peer, endpoint: Endpoint, options: ConnectOptions) -> None:
        self._peer = peer
        self._endpoint = endpoint
        self._options = options
        self._link_tasks = LinkTasks(peer)
        self._posts = asyncio.Semaphore(MAX_POSTS)
        self._post_url: asyncio.Future[URL] = asyncio.get_running_loop().create_future()

    @property
    def failure(self) -> HoldfastError | None:
        return self._link_tasks.failure

    async def open(self) -> None:
        """Open the stream and wait for the address to send messages to."""
        reading = self._link_tasks.start(self._read_stream())
        done, _ = await asyncio.wait(
            [self._post_url, reading],
            timeout=self._options.connect_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not done:
            raise HoldfastError(
                codes.TIMEOUT,
                f"The server did not say where to send messages within {self._options.connect_seconds:g} s.",
            )
        if not self._post_url.done():
            raise self.failure or HoldfastError(
                codes.CONNECTION_CLOSED, "The server ended its stream before it said where to send messages."
            )

    # Called by the peer

    def write(self, data: bytes) -> None:
        message = parse_outgoing(data, ParamHeaders())
        start = self._link_tasks.start if message.is_request else self._link_tasks.start_post
        start(self._post(message))

    def pause_reading(self) -> None:
        """Do nothing, because `_read_stream` waits for capacity before it delivers a request."""

    def resume_reading(self) -> None:
        """Do nothing. See `pause_reading`."""

    def has_hung_up(self) -> bool:
        return False  # asked only while reading is paused, which this transport never does

    async def close(self) -> None:
        await self._link_tasks.close()

    async def _read_stream(self) -> None:
        """Read the server's messages until the stream ends. Then fail the link."""
        url, limits = self._endpoint.display_url, self._options.limits
        try:
            async with self._endpoint.request("GET", headers={"accept": EVENT_STREAM}) as response:
                if not response.is_success:
                    raise self._endpoint.status_error(response)
                if response.media_type != EVENT_STREAM:
                    raise HoldfastError(codes.BAD_ANSWER, f"{url} did not answer with an event stream.")
                async for event in read_events(response, StreamPosition(), limits, self._link_tasks.throttle):
                    if event.name == "endpoint":
                        self._set_post_url(event.data.decode("utf-8", "replace"))
                    elif event.name == "message":
                        message = await read_message(event.data, limits, self._link_tasks.throttle)
                        await self._link_tasks.wait_for_capacity(message)
                        self._peer.message_received(message)
            raise HoldfastError(codes.CONNECTION_CLOSED, f"{url} ended its stream.")
        except HoldfastError as error:
            self._link_tasks.fail(error)

    def _set_post_url(self, reference: str) -> None:
        url = self._endpoint.join(reference)
        if url is None:
            raise HoldfastError(
                codes.BAD_ANSWER,
                f"{self._endpoint.display_url} wants messages sent to another server: {reference[:200]!r}.",
            )
        for secret in secrets_in_urls(str(url)):  # such as the id of the server's own MCP session
            self._endpoint.mask(secret)
        if not self._post_url.done():
            self._post_url.set_result(url)

    async def _post(self, message: OutgoingMessage) -> None:
        """Send one message. If a request cannot be sent, its caller gets the error."""
        try:
            headers = {"content-type": "application/json", **message.headers}
            async with (
                asyncio.timeout(self._options.connect_seconds),
                self._posts,
                self._endpoint.request(
                    "POST",
                    body=message.body,
                    headers=headers,
                    context=message.context,
                    url=self._post_url.result(),
                ) as response,
            ):
                if not response.is_success:
                    raise self._endpoint.status_error(response)
        except TimeoutError:
            text = f"{self._endpoint.display_url} did not accept the message in time."
            self._report_failure(message, HoldfastError(codes.TIMEOUT, text))
        except HoldfastError as error:
            self._report_failure(message, error)

    def _report_failure(self, message: OutgoingMessage, error: HoldfastError) -> None:
        if message.is_request and message.id is not None:
            self._peer.request_failed(message.id, error)
        else:
            log.warning(
                "message not delivered", extra={"url": self._endpoint.display_url, "reason": error.message}
            )
        if error.code is codes.CONNECTION_CLOSED:
            self._link_tasks.fail(error)
