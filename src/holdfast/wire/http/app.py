"""The ASGI application: POST sends a message, GET opens an event stream, DELETE ends a session."""

import asyncio
import logging
from collections.abc import MutableMapping
from functools import partial
from time import monotonic
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.frame import (
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    parse_line,
    result_line,
)
from holdfast.wire.http.allowed_hosts import LOOPBACK_ONLY, AllowedHosts
from holdfast.wire.http.bodies import Bodies, discard_body
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, CallerQuota, HttpLimits
from holdfast.wire.http.mcp_headers import check_mcp_headers, check_param_headers
from holdfast.wire.http.request import (
    BadHeadError,
    ClientDisconnectedError,
    Headers,
    Receive,
    Send,
    accepts,
    read_headers,
    wait_for_disconnect,
)
from holdfast.wire.http.response import AsgiResponse, send_error, send_response
from holdfast.wire.http.running_request import RunningRequest, run_request
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from holdfast.wire.incoming_requests import MCP_CANCEL, CancelParams
from holdfast.wire.lines import LONG_BYTES
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.mcp.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSION_KEY
from holdfast.wire.mcp.server import (
    BackChannel,
    HttpCaller,
    HttpRequest,
    Service,
    answer_request,
    cannot_ask,
    initialize,
    read_meta,
)
from holdfast.wire.mcp.tools import ParamHeader
from holdfast.wire.parse_threads import parse_in_thread
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

CONNECTION_EXTENSION = "holdfast.connection"
"""The ASGI extension with the `Connection` of a request."""

_HANDLING_FACTOR = 2  # what handling a message takes, compared with parsing it
_MAX_THROTTLES = 1024  # how many callers are remembered
_SESSION_ID_HEADER = b"mcp-session-id"


class Connection(Protocol):
    """The connection of a request, if the server lets the application take part in its limits."""

    throttle: LoopThrottle
    """Limits the time to parse what arrives on this connection. The application sets it to the throttle of its caller."""

    def request_received(self) -> None:
        """Called when the application has a complete request from a known caller. Until then, the server may close the connection to make room for others."""
        ...

    def request_refused(self, *, is_chunked: bool) -> None:
        """Called when the application refuses a request before its body is read."""
        ...


class HttpService(Service, Protocol):
    """An MCP service that can be served over HTTP."""

    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that the client must repeat in headers."""
        ...

    def identify(self, headers: Headers, query: str) -> HttpCaller:
        """Find out from the head of a request who sent it, before the body is read. Raise if that caller is refused."""
        ...

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        """Raise unless the caller's token is for this body and unused. Called before a session is opened, changed or ended."""
        ...

    def on_session_end(self, session_id: str) -> None:
        """Called when the session of a handshake-era client has ended."""
        ...


class HttpApp:
    """The ASGI application of a service. The service identifies the callers."""

    def __init__(
        self,
        service: HttpService,
        *,
        allowed_hosts: AllowedHosts = LOOPBACK_ONLY,
        http_limits: HttpLimits = DEFAULT_HTTP_LIMITS,
        path: str = "/mcp",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._service = service
        self._allowed_hosts = allowed_hosts
        self._http_limits = http_limits
        self._path = path
        self._limits = limits
        self._in_flight = CallerQuota(total=http_limits.in_flight, share=http_limits.in_flight_per_caller)
        self._throttles: dict[str, LoopThrottle] = {}  # by caller; the one used last is last
        self.bodies = Bodies(http_limits)
        self.sessions = HttpSessions(http_limits, service.on_session_end)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request. The body of a refused request is neither stored nor parsed."""
        if scope["type"] != "http":
            raise RuntimeError(f"This application supports http, not {scope['type']}.")
        connection: Connection | None = scope.get("extensions", {}).get(CONNECTION_EXTENSION)
        try:
            headers, caller = self._read_head(scope)
        except HoldfastError as error:
            if connection is not None:
                is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
                connection.request_refused(is_chunked=is_chunked)
            await discard_body(receive, self._http_limits)
            await send_error(send, error)
            return
        if connection is None:
            throttle = self._throttle_of(caller.owner)
        elif caller.owner:
            throttle = connection.throttle = self._throttle_of(caller.owner)
        else:
            throttle = connection.throttle  # the server cannot tell callers apart: charge the address
        try:
            match scope["method"]:
                case "POST":
                    async with self.bodies.read(receive, headers, caller.owner) as body:
                        if connection is not None:
                            connection.request_received()
                        http = HttpRequest(headers=headers, body=body, caller=caller)
                        await self._post(http, await self._parse(http, throttle), receive, send)
                case "GET":
                    http = HttpRequest(headers=headers, body=b"", caller=caller)
                    await self._listen(http, connection, receive, send)
                case _:
                    await self._delete(HttpRequest(headers=headers, body=b"", caller=caller), send)
        except HoldfastError as error:
            await send_error(send, error)
        except ClientDisconnectedError:
            pass

    def close(self) -> None:
        """End every session and its streams."""
        self.sessions.end_all()

    def _read_head(self, scope: MutableMapping[str, Any]) -> tuple[Headers, HttpCaller]:
        """Check everything that can be checked before the body is read."""
        headers = read_headers(scope["headers"])
        self._allowed_hosts.check(headers)
        method: str = scope["method"]
        if scope["path"] != self._path:
            raise BadHeadError(404, "There is nothing at this path.")
        if method not in ("DELETE", "GET", "POST"):
            raise BadHeadError(405, "Use POST, GET or DELETE.", allow="DELETE, GET, POST")
        query = scope.get("query_string", b"").decode("latin-1")
        caller = self._service.identify(headers, query)
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise BadHeadError(415, "The body must be application/json.")
            if not accepts(headers, "application/json"):
                raise BadHeadError(406, "Accept must allow application/json.")
        elif method == "GET":
            if headers.get("mcp-protocol-version") in MODERN_VERSIONS:
                raise BadHeadError(405, "This version of MCP has no GET.", allow="POST")
            if not accepts(headers, "text/event-stream"):
                raise BadHeadError(406, "Accept must allow text/event-stream.")
        return headers, caller

    def _throttle_of(self, owner: str) -> LoopThrottle:
        """The throttle that all connections of a caller share."""
        throttle = self._throttles.pop(owner, None) or LoopThrottle(
            f"http {owner}", burst_seconds=BURST_SECONDS
        )
        self._throttles[owner] = throttle
        if len(self._throttles) > _MAX_THROTTLES:
            del self._throttles[next(iter(self._throttles))]
        return throttle

    async def _post(self, http: HttpRequest, message: Message | None, receive: Receive, send: Send) -> None:
        match message:
            case Request() as request:
                await self._handle_request(request, http, receive, send)
            case Notification() as notification:
                self._handle_notification(notification, http)
                await send_response(send, 202)
            case Malformed() as malformed:
                await send_error(
                    send, HoldfastError(malformed.code, malformed.reason), malformed.id, status=400
                )
            case None:
                await send_error(send, HoldfastError(codes.PARSE_ERROR, "The body is empty."), status=400)
            case Response() | ErrorResponse():
                self._handle_response(message, http)
                await send_response(send, 202)

    async def _parse(self, http: HttpRequest, throttle: LoopThrottle) -> Message | None:
        if len(http.body) > LONG_BYTES:
            return await parse_in_thread(http.body, self._limits, throttle)
        started = monotonic()
        if throttle.free_at > started and throttle.must_wait(started):
            await throttle.pause()
            started = monotonic()
        message = parse_line(http.body, self._limits)
        # Later steps read parts of the message again: its `_meta`, the values that headers repeat, the arguments.
        throttle.charge(_HANDLING_FACTOR * (monotonic() - started))
        return message

    async def _handle_request(
        self, request: Request, http: HttpRequest, receive: Receive, send: Send
    ) -> None:
        owner = http.caller.owner
        if not self._in_flight.try_acquire(owner):
            is_own_limit = self._in_flight.would_exceed_share(owner)
            in_flight = (
                f"{self._in_flight.share} requests from this caller"
                if is_own_limit
                else f"{self._in_flight.total} requests"
            )
            await send_error(
                send, HoldfastError(codes.BUSY, f"{in_flight} are already in flight."), request.id
            )
            return
        try:
            await self._answer(request, http, receive, send)
        finally:
            self._in_flight.release(owner)

    async def _answer(self, request: Request, http: HttpRequest, receive: Receive, send: Send) -> None:
        session: HttpSession | None = None
        try:
            meta = read_meta(request.params)
            if _is_modern(meta, http.headers):
                check_mcp_headers(request, meta, http.headers)
                if http.headers["mcp-protocol-version"] in MODERN_VERSIONS:
                    check_param_headers(request, self._service.param_headers_of, http.headers)
            elif request.method == "initialize":
                await self._initialize(request, http, send)
                return
            else:
                session = self._find_session(http)
                http = msgspec.structs.replace(http, session_id=session.session_id)
                if request.id in session.running:
                    raise HoldfastError(codes.INVALID_REQUEST, "A request with this id is still in flight.")
        except HoldfastError as error:
            await send_error(send, error, request.id)
            return
        response = AsgiResponse(send, can_stream=accepts(http.headers, "text/event-stream"))
        client = session.client if session is not None else None
        result = answer_request(
            self._service,
            request,
            client,
            _back_channel(session, response),
            connection=http.session_id,
            http=http,
        )
        await run_request(
            request.id, result, response, RunningRequest(response, receive, session, self._http_limits)
        )

    async def _initialize(self, request: Request, http: HttpRequest, send: Send) -> None:
        client, result = initialize(self._service, request)
        self._service.authorize(http.caller, http.body)
        session = self.sessions.open(client, http.caller.owner)
        response = AsgiResponse(send, can_stream=False)
        await response.send_result(
            result_line(request.id, result), headers=((_SESSION_ID_HEADER, session.session_id.encode()),)
        )

    def _handle_notification(self, notification: Notification, http: HttpRequest) -> None:
        if http.headers.get("mcp-session-id") is None:
            # Modern clients have no session, so there is nothing that a notification could change.
            return
        session = self._find_session(http)
        self._service.authorize(http.caller, http.body)
        if notification.method == MCP_CANCEL.method:
            try:
                session.cancel(msgspec.json.decode(notification.params, type=CancelParams).request_id)
            except DECODE_ERRORS:
                raise HoldfastError(codes.BAD_ARGUMENT, "The cancellation has no valid requestId.") from None
        elif notification.method != "notifications/initialized":
            self._service.on_notification(notification)

    def _handle_response(self, message: Response | ErrorResponse, http: HttpRequest) -> None:
        """Pass the answer to a request of this server on. Modern clients get no requests, and have no session."""
        if http.headers.get("mcp-session-id") is not None:
            session = self._find_session(http)
            self._service.authorize(http.caller, http.body)
            session.back_channel.receive(message)

    def _find_session(self, http: HttpRequest) -> HttpSession:
        return self.sessions.find(http.headers.get("mcp-session-id"), http.caller.owner)

    async def _delete(self, http: HttpRequest, send: Send) -> None:
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        self.sessions.end(session)
        await send_response(send, 204)

    async def _listen(
        self, http: HttpRequest, connection: Connection | None, receive: Receive, send: Send
    ) -> None:
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        if session.is_listening:
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "This session already has a stream."), status=409
            )
            return
        if connection is not None:
            connection.request_received()
        session.is_listening = True
        try:
            await self._stream(session, AsgiResponse(send, can_stream=True), receive)
        finally:
            session.is_listening = False

    async def _stream(self, session: HttpSession, response: AsgiResponse, receive: Receive) -> None:
        await response.send_keepalive()
        channel = session.back_channel
        end_signals = [
            asyncio.ensure_future(wait_for_disconnect(receive)),
            asyncio.ensure_future(session.ended.wait()),
        ]
        has_queued: asyncio.Future[Any] | None = None
        try:
            while not any(task.done() for task in end_signals):
                has_queued = has_queued or asyncio.ensure_future(channel.has_queued.wait())
                await asyncio.wait(
                    [*end_signals, has_queued],
                    timeout=self._http_limits.keepalive_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not has_queued.done():
                    await response.send_keepalive()
                    continue
                has_queued = None
                for line in channel.take_queued():
                    await response.send_line(line)
            await response.end()
        finally:
            for task in (*end_signals, has_queued):
                if task is not None:
                    task.cancel()


def _back_channel(session: HttpSession | None, response: AsgiResponse) -> BackChannel:
    """How to reach the client: requests go on this response's stream, other notifications on the session's GET stream."""
    if session is None:
        return BackChannel(response.notify)
    channel = session.back_channel
    ask = partial(channel.ask, response.send_line) if response.can_stream else cannot_ask
    return BackChannel(response.notify, ask, channel.push)


def _is_modern(meta: JsonObject, headers: Headers) -> bool:
    """Whether a request belongs to the modern era, according to its `_meta` or its version header."""
    version = headers.get("mcp-protocol-version")
    return VERSION_KEY in meta or (version is not None and version not in HANDSHAKE_VERSIONS)
