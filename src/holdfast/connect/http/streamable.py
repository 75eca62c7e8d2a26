"""The streamable HTTP transport: each message is a POST, answered by one JSON body or by a stream of events."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.endpoint import EVENT_STREAM, Endpoint
from holdfast.connect.http.event_stream import StreamPosition, read_body, read_messages
from holdfast.connect.http.link_tasks import MAX_POSTS, LinkTasks
from holdfast.connect.http.outgoing_message import OutgoingMessage, parse_outgoing
from holdfast.connect.http.param_headers import ParamHeaders
from holdfast.connect.http.response import BrokenResponseError, HttpResponse
from holdfast.connect.http.server_stream import (
    MAX_RESUMES,
    SESSION_ID_HEADER,
    McpSessionHeaders,
    ResumePauses,
    read_server_stream,
)
from holdfast.connect.server_messages import subscribe_to_changes, wanted_changes
from holdfast.connect.server_requests import ServerRequests
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import NEGOTIATION_LIMIT
from holdfast.wire.mcp.client import Client
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.messages import ErrorResponse, Id, Malformed, Message, Response
from holdfast.wire.peer import Peer
from holdfast.wire.strict_json import exceeds_limit

log = logging.getLogger(__name__)

_POST_HEADERS = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
_DRAIN_SECONDS = 1.0  # how long to wait for the end of a stream after the answer
_SESSION_ENDED_STATUSES = (400, 404)


class HttpTransport:
    """Carries a peer's messages over HTTP. Each is sent as a request, in its own task."""

    def __init__(self, peer: Peer, endpoint: Endpoint, options: ConnectOptions) -> None:
        self._peer = peer
        self._endpoint = endpoint
        self._options = options
        self._param_headers = ParamHeaders(peer.throttle.owner)
        self._requests: dict[Id, tuple[OutgoingMessage, asyncio.Task[None]]] = {}
        self._link_tasks = LinkTasks(peer)
        self._one_way = asyncio.Semaphore(MAX_POSTS)
        self._initialized_post: asyncio.Task[None] | None = None
        self._mcp_session = McpSessionHeaders()

    @property
    def failure(self) -> HoldfastError | None:
        return self._link_tasks.failure

    async def set_tools(self, tools: Sequence[Tool]) -> None:
        """Set the tools, whose schemas say which arguments are repeated in headers."""
        await self._param_headers.set_tools(tools)

    # Called by the peer

    def write(self, data: bytes) -> None:
        """Start to send a message. If it cancels a request, stop that request first."""
        message = parse_outgoing(data, self._param_headers)
        if message.cancels is not None:
            request, task = self._requests.pop(message.cancels, (None, None))
            if task is not None:
                task.cancel()
            if request is None or request.is_modern:
                return  # the request was answered already, or the server sees that its connection is closed
        if message.is_request:
            assert message.id is not None
            task = self._link_tasks.start(self._send_request(message))
            self._requests[message.id] = (message, task)
        else:
            task = self._link_tasks.start_post(self._send_one_way(message))
            if message.method == "notifications/initialized":
                self._initialized_post = task

    def pause_reading(self) -> None:
        """Do nothing, because each stream waits for capacity before it delivers a request."""

    def resume_reading(self) -> None:
        """Do nothing. See `pause_reading`."""

    def has_hung_up(self) -> bool:
        return False  # asked only while reading is paused, which this transport never does

    async def close(self) -> None:
        """Cancel all requests in flight, and end the server's own MCP session."""
        await self._link_tasks.close()
        if self._mcp_session.session_id and self._link_tasks.failure is None:
            try:
                async with (
                    asyncio.timeout(self._options.end_seconds),
                    self._endpoint.request("DELETE", headers=self._mcp_session.headers()),
                ):
                    pass
            except (HoldfastError, TimeoutError) as error:
                log.debug("MCP session not ended", extra={"reason": str(error)})

    def listen(self, client: Client, server_requests: ServerRequests) -> None:
        """Start to read the messages that the server sends on its own."""
        if wanted := wanted_changes(client, server_requests):
            self._link_tasks.start(subscribe_to_changes(client, server_requests, wanted))
        elif self._mcp_session.session_id:
            self._link_tasks.start(self._read_server_stream())

    # Requests

    async def _send_request(self, request: OutgoingMessage) -> None:
        assert request.id is not None
        try:
            await self._wait_for_initialized()
            async with self._post(request) as response:
                await self._deliver_response(request, response)
        except HoldfastError as error:
            self._peer.request_failed(request.id, error)
            if error.code is codes.CONNECTION_CLOSED:
                self._link_tasks.fail(error)
        finally:
            self._requests.pop(request.id, None)

    async def _deliver_response(self, request: OutgoingMessage, response: HttpResponse) -> None:
        """Deliver the answer to a request, and the messages before it."""
        if not response.is_success:
            self._deliver(request, await self._read_error(request, response))
            return
        if request.method == "initialize":
            session_id = response.headers.get(SESSION_ID_HEADER, "")
            self._mcp_session.session_id = (
                session_id if session_id.isascii() and session_id.isprintable() else ""
            )
            self._endpoint.mask(self._mcp_session.session_id)
        match response.media_type:
            case "application/json":
                message = await self._read_body(response)
                if isinstance(message, Malformed) or not _answers(message, request.id):
                    reason = (
                        message.reason if isinstance(message, Malformed) else "It is for another request."
                    )
                    raise HoldfastError(codes.BAD_ANSWER, f"The answer cannot be read. {reason}")
                self._deliver(request, message)
            case media_type if media_type == EVENT_STREAM:
                await self._read_stream(request, response)
            case media_type:
                kind = f"of type {media_type[:80]!r}" if media_type else "without a type"
                raise HoldfastError(
                    codes.BAD_ANSWER,
                    f'{self._endpoint.display_url} sent an answer {kind}. Check "url" in the entry of the server.',
                )

    async def _read_body(self, response: HttpResponse) -> Message:
        limits = self._options.limits
        return await read_body(response, limits, self._link_tasks.throttle)

    async def _read_error(self, request: OutgoingMessage, response: HttpResponse) -> ErrorResponse:
        """The error in the body of an unsuccessful response. If it has none, raise the error for its status."""
        body: Message | None = None
        if response.media_type == "application/json":
            body = await self._read_body(response)
        has_ended = response.status in _SESSION_ENDED_STATUSES and not _answers(body, request.id)
        if self._mcp_session.session_id and has_ended:
            raise HoldfastError(
                codes.CONNECTION_CLOSED,
                f"{self._endpoint.display_url} has ended its own MCP session (Mcp-Session-Id).",
            )
        if isinstance(body, ErrorResponse) and response.status != 401:
            return ErrorResponse(request.id, body.error)
        raise self._endpoint.status_error(response)

    async def _read_stream(self, request: OutgoingMessage, response: HttpResponse) -> None:
        """Read a stream up to the answer. Resume the stream if it ends early and the server supports that."""
        position = StreamPosition()
        resumes, last_id, pauses = 0, "", ResumePauses()
        if await self._deliver_until_answered(request, response, position):
            return
        while position.event_id and resumes < MAX_RESUMES:
            resumes = resumes + 1 if position.event_id == last_id else 0
            last_id = position.event_id
            await asyncio.sleep(pauses.next(position))
            async with self._endpoint.request("GET", headers=self._mcp_session.headers(position)) as resumed:
                if resumed.is_success and await self._deliver_until_answered(request, resumed, position):
                    return
        raise HoldfastError(
            codes.CONNECTION_CLOSED, f"{self._endpoint.display_url} ended its stream without an answer."
        )

    async def _deliver_until_answered(
        self, request: OutgoingMessage, response: HttpResponse, position: StreamPosition
    ) -> bool:
        """Deliver the messages of a stream. Return whether the answer was one of them."""
        answered = False
        try:
            async with asyncio.timeout(None) as deadline:
                async for message in read_messages(
                    response, position, self._options.limits, self._link_tasks.throttle
                ):
                    await self._link_tasks.wait_for_capacity(message)
                    self._deliver(request, message)
                    if _answers(message, request.id):
                        answered = True
                        # If the server ends the stream soon, the connection can be reused.
                        deadline.reschedule(asyncio.get_running_loop().time() + _DRAIN_SECONDS)
        except BrokenResponseError:
            if not answered and not position.event_id:
                raise
        except TimeoutError:
            pass
        return answered

    def _deliver(self, request: OutgoingMessage, message: Message) -> None:
        if isinstance(message, Response) and message.id == request.id and request.method == "initialize":
            self._mcp_session.version = _protocol_version(message)
        self._peer.message_received(message)

    # Notifications, and answers to the server's requests

    async def _send_one_way(self, message: OutgoingMessage) -> None:
        try:
            async with (
                asyncio.timeout(self._options.connect_seconds),
                self._one_way,
                self._post(message) as response,
            ):
                if not response.is_success:
                    raise self._endpoint.status_error(response)
        except (HoldfastError, TimeoutError) as error:
            log.warning(
                "message not delivered", extra={"url": self._endpoint.display_url, "reason": str(error)}
            )

    async def _read_server_stream(self) -> None:
        await self._wait_for_initialized()
        await read_server_stream(
            self._peer, self._endpoint, self._mcp_session, self._link_tasks, self._options.limits
        )

    async def _wait_for_initialized(self) -> None:
        """Wait until `notifications/initialized` is sent, because the server must get it before any other request."""
        if self._initialized_post is not None and not self._initialized_post.done():
            await asyncio.wait([self._initialized_post])

    def _post(self, message: OutgoingMessage) -> AbstractAsyncContextManager[HttpResponse]:
        headers = {**self._mcp_session.headers(), **_POST_HEADERS, **message.headers}
        return self._endpoint.request("POST", body=message.body, headers=headers, context=message.context)


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


def _protocol_version(response: Response) -> str:
    if exceeds_limit(response.result, NEGOTIATION_LIMIT):
        return ""  # `negotiate` reports the error
    try:
        version = msgspec.json.decode(response.result, type=_InitializeResult).protocol_version
    except msgspec.MsgspecError:
        return ""  # `negotiate` reports the error
    return version if version.isascii() and version.isprintable() else ""


def _answers(message: Message | None, request_id: Id | None) -> bool:
    """Whether this message is the answer to the request. A malformed answer also counts."""
    match message:
        case (
            Response(id=answered) | ErrorResponse(id=answered) | Malformed(id=answered, may_be_response=True)
        ):
            return answered == request_id
        case _:
            return False
