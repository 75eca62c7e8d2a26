"""The ASGI application: POST sends a message, GET opens an event stream, DELETE ends a session."""

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.frame import Malformed, Message, Notification, Request, parse_line, result_line
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
from holdfast.wire.mcp.server import HttpCaller, HttpRequest, Service, answer_request, initialize, read_meta
from holdfast.wire.mcp.tools import ParamHeader
from holdfast.wire.parse_threads import parse_in_thread
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

RECEIVED_EXTENSION = "holdfast.received"
"""The ASGI extension with a function that the application calls when it has a complete request from a known caller. Until
then, the server may close the connection to make room for others."""

IDENTIFY_EXTENSION = "holdfast.identify"
"""The ASGI extension with a function that the application calls with the caller's throttle, if it can tell callers apart.
From then on, that caller is charged for the time to parse what arrives on this connection."""

REFUSE_EXTENSION = "holdfast.refuse"
"""The ASGI extension with a function that the application calls when it refuses a request before its body is read."""

THROTTLE_EXTENSION = "holdfast.throttle"
"""The ASGI extension with the throttle of the connection, for callers that the application cannot tell apart."""

_MAX_THROTTLES = 1024  # how many callers are remembered
_SESSION_ID_HEADER = b"mcp-session-id"


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
        extensions = scope.get("extensions", {})
        try:
            head = self._read_head(scope)
        except HoldfastError as error:
            extensions.get(REFUSE_EXTENSION, _do_nothing)()
            await discard_body(receive, self._http_limits)
            await send_error(send, error)
            return
        if not head.caller.owner and THROTTLE_EXTENSION in extensions:
            throttle: LoopThrottle = extensions[THROTTLE_EXTENSION]
        else:
            throttle = self._throttle_of(head.caller.owner)
            extensions.get(IDENTIFY_EXTENSION, _ignore_throttle)(throttle)
        on_received = extensions.get(RECEIVED_EXTENSION, _do_nothing)
        try:
            match scope["method"]:
                case "POST":
                    async with self.bodies.read(receive, head.headers, head.caller.owner) as body:
                        on_received()
                        http = msgspec.structs.replace(head, body=body)
                        await self._post(http, await self._parse(http, throttle), receive, send)
                case "GET":
                    await self._listen(head, on_received, receive, send)
                case _:
                    await self._delete(head, send)
        except HoldfastError as error:
            await send_error(send, error)
        except ClientDisconnectedError:
            pass

    def close(self) -> None:
        """End every session and its streams."""
        self.sessions.end_all()

    def _read_head(self, scope: MutableMapping[str, Any]) -> HttpRequest:
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
        return HttpRequest(headers=headers, body=b"", caller=caller)

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
            case _:  # a response; ignored, because this server sends no requests
                await send_response(send, 202)

    async def _parse(self, http: HttpRequest, throttle: LoopThrottle) -> Message | None:
        if len(http.body) > LONG_BYTES:
            return await parse_in_thread(http.body, self._limits, throttle)
        return parse_line(http.body, self._limits)

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
            self._service, request, client, response.notify, connection=http.session_id, http=http
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

    def _find_session(self, http: HttpRequest) -> HttpSession:
        return self.sessions.find(http.headers.get("mcp-session-id"), http.caller.owner)

    async def _delete(self, http: HttpRequest, send: Send) -> None:
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        self.sessions.end(session)
        await send_response(send, 204)

    async def _listen(
        self, http: HttpRequest, on_received: Callable[[], None], receive: Receive, send: Send
    ) -> None:
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        if session.is_listening:
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "This session already has a stream."), status=409
            )
            return
        on_received()
        session.is_listening = True
        try:
            await self._stream(session, AsgiResponse(send, can_stream=True), receive)
        finally:
            session.is_listening = False

    async def _stream(self, session: HttpSession, response: AsgiResponse, receive: Receive) -> None:
        await response.send_keepalive()
        end_signals = [
            asyncio.ensure_future(wait_for_disconnect(receive)),
            asyncio.ensure_future(session.ended.wait()),
        ]
        try:
            while not any(task.done() for task in end_signals):
                await asyncio.wait(
                    end_signals,
                    timeout=self._http_limits.keepalive_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                await response.send_keepalive()
            await response.end()
        finally:
            for task in end_signals:
                task.cancel()


def _do_nothing() -> None:
    pass


def _ignore_throttle(throttle: LoopThrottle) -> None:
    pass


def _is_modern(meta: JsonObject, headers: Headers) -> bool:
    """Whether a request belongs to the modern era, according to its `_meta` or its version header."""
    version = headers.get("mcp-protocol-version")
    return VERSION_KEY in meta or (version is not None and version not in HANDSHAKE_VERSIONS)
