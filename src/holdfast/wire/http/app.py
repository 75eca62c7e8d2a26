"""The ASGI application: POST sends a message, GET opens an event stream, DELETE ends an MCP session."""

import asyncio
from collections.abc import MutableMapping
from functools import partial
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.http.allowed_hosts import LOOPBACK_ONLY, AllowedHosts
from holdfast.wire.http.bodies import Bodies
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, HttpLimits
from holdfast.wire.http.mcp_headers import check_mcp_headers, check_param_headers
from holdfast.wire.http.receiver import HttpExchange, HttpReceiver
from holdfast.wire.http.request import (
    BadHeadError,
    Headers,
    Receive,
    Send,
    accepts,
    is_modern,
    wait_for_disconnect,
)
from holdfast.wire.http.response import AsgiResponse, send_error, send_response
from holdfast.wire.http.running_request import DisconnectWatch, RunningRequest, run_request
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from holdfast.wire.incoming_requests import MCP_CANCEL, CancelParams
from holdfast.wire.mcp.eras import MODERN_VERSIONS
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
from holdfast.wire.messages import ErrorResponse, Notification, Request, Response, result_line
from holdfast.wire.strict_json import DECODE_ERRORS

_SESSION_ID_HEADER = b"mcp-session-id"


class HttpService(Service, Protocol):
    """An MCP service that can be served over HTTP."""

    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that the client must repeat in headers."""
        ...

    def identify(self, headers: Headers, query: str) -> HttpCaller:
        """Find out from the head of a request who sent it, before the body is read. Raise if the caller is refused."""
        ...

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        """Raise unless the caller's token is for this body and unused.

        Called before `initialize`, a notification, a response, a stream or the end of a session is handled. For other requests, `answer`
        must do this itself.
        """
        ...

    def on_session_end(self, session_id: str) -> None:
        """Release what is kept for a handshake-era client whose session has ended."""
        ...


class HttpApp:
    """The ASGI application that serves one MCP service. The service identifies the callers."""

    def __init__(
        self,
        service: HttpService,
        *,
        allowed_hosts: AllowedHosts = LOOPBACK_ONLY,
        http_limits: HttpLimits = DEFAULT_HTTP_LIMITS,
        path: str = "/mcp",
        limits: Limits = DEFAULT_LIMITS,
        shown_headers: frozenset[str] = frozenset(),
    ) -> None:
        """`shown_headers` are the names of the headers that the service may pass on to tools."""
        self._shown_headers = shown_headers
        self._service = service
        self._http_limits = http_limits
        self._disconnects = DisconnectWatch(http_limits)
        self._path = path
        self._receiver = HttpReceiver(
            self, allowed_hosts=allowed_hosts, http_limits=http_limits, limits=limits
        )
        self.sessions = HttpSessions(http_limits, service.on_session_end)

    @property
    def bodies(self) -> Bodies:
        """The request bodies in memory."""
        return self._receiver.bodies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        await self._receiver.receive(scope, receive, send)

    def close(self) -> None:
        """End every session and its streams."""
        self.sessions.end_all()

    # Called by the receiver

    def identify(self, scope: MutableMapping[str, Any], headers: Headers) -> HttpCaller:
        """Let the service identify the caller."""
        if scope["path"] != self._path and str(scope["path"]).rstrip("/") != self._path:
            raise BadHeadError(404, f"There is nothing at this path. The MCP server is at {self._path}.")
        return self._service.identify(headers, scope.get("query_string", b"").decode("latin-1"))

    def on_refusal(self, error: HoldfastError, caller: HttpCaller | None) -> None:
        """Do nothing: only the gateway records refusals."""

    async def handle_request(self, request: Request, http: HttpExchange[HttpCaller]) -> None:
        """Answer one request of a client of either era."""
        session: HttpSession | None = None
        try:
            meta = read_meta(request.params)
            if is_modern(meta, http.headers):
                check_mcp_headers(request, meta, http.headers)
                if http.headers["mcp-protocol-version"] in MODERN_VERSIONS:
                    check_param_headers(request, self._service.param_headers_of, http.headers)
            elif request.method == "initialize":
                await self._initialize(request, http)
                return
            else:
                session = self._find_session(http)
                if request.id in session.running:
                    raise HoldfastError(
                        codes.INVALID_REQUEST,
                        "A request with this id is still in flight. Use a new id for each request.",
                    )
        except HoldfastError as error:
            await send_error(http.send, error, request.id)
            return
        response = AsgiResponse(http.send, can_stream=accepts(http.headers, "text/event-stream"))
        session_id = session.session_id if session is not None else ""
        result = answer_request(
            self._service,
            request,
            session.client if session is not None else None,
            _back_channel(session, response),
            connection=session_id,
            http=HttpRequest(
                headers=http.headers,
                body=http.body,
                caller=http.caller,
                shown_headers={
                    name: http.headers[name] for name in self._shown_headers if name in http.headers
                },
                session_id=session_id,
            ),
        )
        running = RunningRequest(response, http.receive, session, self._disconnects)
        await run_request(request.id, result, response, running)

    async def _initialize(self, request: Request, http: HttpExchange[HttpCaller]) -> None:
        client, result = initialize(self._service, request)
        self._service.authorize(http.caller, http.body)
        session = self.sessions.open(client, http.caller.caller_id)
        response = AsgiResponse(http.send, can_stream=False)
        await response.send_result(
            result_line(request.id, result), headers=((_SESSION_ID_HEADER, session.session_id.encode()),)
        )

    async def handle_notification(self, notification: Notification, http: HttpExchange[HttpCaller]) -> None:
        """Handle a notification. A modern client has no session, so its notifications are ignored."""
        if http.session_id is None:
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

    def handle_response(self, message: Response | ErrorResponse, http: HttpExchange[HttpCaller]) -> None:
        """Pass on the client's answer to a request of this server. Modern clients get no requests, so their answers are ignored."""
        if http.session_id is not None:
            session = self._find_session(http)
            self._service.authorize(http.caller, http.body)
            session.outgoing.receive(message)

    async def listen(self, http: HttpExchange[HttpCaller]) -> None:
        """Send the notifications of a session on a stream."""
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        if session.is_listening:
            error = HoldfastError(
                codes.BAD_HTTP, "This session already has a GET stream. Close that stream first."
            )
            await send_error(http.send, error, status=409)
            return
        session.is_listening = True
        try:
            await self._stream(session, AsgiResponse(http.send, can_stream=True), http.receive)
        finally:
            session.is_listening = False

    async def end_session(self, http: HttpExchange[HttpCaller]) -> None:
        """End the session of a handshake-era client."""
        session = self._find_session(http)
        self._service.authorize(http.caller, b"")
        self.sessions.end(session)
        await send_response(http.send, 204)

    def _find_session(self, http: HttpExchange[HttpCaller]) -> HttpSession:
        return self.sessions.find(http.session_id, http.caller.caller_id)

    async def _stream(self, session: HttpSession, response: AsgiResponse, receive: Receive) -> None:
        """Send keepalives, and the queued notifications of the session, until the client disconnects or the session ends."""
        await response.send_keepalive()
        outgoing = session.outgoing
        end_signals = [
            asyncio.ensure_future(wait_for_disconnect(receive)),
            asyncio.ensure_future(session.ended.wait()),
        ]
        next_message: asyncio.Future[Any] | None = None
        try:
            while not any(task.done() for task in end_signals):
                next_message = next_message or asyncio.ensure_future(outgoing.has_queued.wait())
                await asyncio.wait(
                    [*end_signals, next_message],
                    timeout=self._http_limits.keepalive_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not next_message.done():
                    await response.send_keepalive()
                    continue
                next_message = None
                for line in outgoing.take_queued():
                    await response.send_line(line)
            await response.end()
        finally:
            for task in (*end_signals, next_message):
                if task is not None:
                    task.cancel()


def _back_channel(session: HttpSession | None, response: AsgiResponse) -> BackChannel:
    """The ways to send messages to a client.

    Requests, and notifications about the request that is being answered, go on the stream of this response; other notifications wait
    for the client's GET stream.
    """
    if session is None:
        return BackChannel(response.notify)
    outgoing = session.outgoing
    ask = partial(outgoing.ask, response.send_line) if response.can_stream else cannot_ask
    return BackChannel(response.notify, ask, outgoing.push)
