"""The gateway over HTTP, as an ASGI application: POST sends a message, GET opens a stream, DELETE ends a session."""

import asyncio
import re
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import msgspec

from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.client_sessions import ClientSessions, ServedClient
from holdfast.gateway.credential import LOCAL, Authenticate, Credential
from holdfast.gateway.event_streams import EventResponse, PostResponse
from holdfast.gateway.options import GatewayOptions, SessionSummary, why_not_opened
from holdfast.gateway.own_requests import OwnRequests
from holdfast.gateway.parked_calls import ModernCall
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, CallerQuota
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
from holdfast.wire.http.response import AsgiResponse, http_status, send_error, send_response
from holdfast.wire.http.running_request import DisconnectWatch, RunningRequest, run_request
from holdfast.wire.incoming_requests import MCP_CANCEL, CancelParams
from holdfast.wire.mcp.eras import MODERN_VERSIONS
from holdfast.wire.mcp.server import (
    BackChannel,
    Notify,
    cannot_ask,
    initialize_result,
    modern_client,
    read_client,
    read_meta,
)
from holdfast.wire.messages import (
    ErrorResponse,
    Notification,
    PeerError,
    Request,
    Response,
    notification_line,
    result_line,
)
from holdfast.wire.strict_json import DECODE_ERRORS

HANDLE_HEADER = "holdfast-session"
_PATH = re.compile(r"/s/(?P<handle>[A-Za-z0-9_-]{1,64})/mcp")


def _accept_as_local(headers: Headers, client_address: str) -> Credential:
    return LOCAL


class GatewayCaller(msgspec.Struct, frozen=True):
    """Who sent a request: a credential, and the handle of one of its sessions if the request names one."""

    credential: Credential
    handle: str
    caller_id: str
    """The id that limits are counted by: the credential's."""


class GatewayApp:
    """The ASGI application of a gateway. Each client session is a Holdfast session of the host."""

    def __init__(self, host: Host, authenticate: Authenticate | None, options: GatewayOptions) -> None:
        self._host = host
        self._authenticate = authenticate or _accept_as_local
        self._options = options
        limits = self._http_limits = options.http_limits or DEFAULT_HTTP_LIMITS
        self._disconnects = DisconnectWatch(limits)
        self._open_streams = CallerQuota(total=limits.in_flight, share=limits.in_flight_per_caller)
        self._receiver = HttpReceiver(
            self,
            allowed_hosts=options.allowed_hosts,
            http_limits=limits,
            limits=options.limits or DEFAULT_LIMITS,
            challenge=options.challenge,
        )
        self.sessions = ClientSessions(host, options)
        self._own_requests = OwnRequests(host.settings.data_dir / KEYS_FOLDER)

    def issue_handle(self, credential: Credential) -> str:
        """A new handle of this credential, for the path `/s/<handle>/mcp`."""
        return self.sessions.issue_handle(credential)

    def open_sessions(self) -> list[SessionSummary]:
        """The open sessions, as an operator sees them."""
        return [served.session.describe() for served in self.sessions]

    async def close_credential(self, credential_id: str, reason: str = "the credential was revoked") -> None:
        """End all sessions of a credential, with their own servers and their streams."""
        await self.sessions.end_credential(credential_id, reason)

    async def drain(self, seconds: float) -> None:
        """Open no more sessions, and wait until the running requests are answered, for at most `seconds`."""
        self.sessions.is_draining = True
        await self._receiver.wait_until_answered(seconds)

    async def close(self, reason: str = "the gateway was closed") -> None:
        """End every session."""
        self.sessions.is_draining = True
        await self.sessions.close(reason)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._receiver.receive(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # Called by the receiver

    def identify(self, scope: MutableMapping[str, Any], headers: Headers) -> GatewayCaller:
        """The credential that a request presents, and the handle in its path or header."""
        handle = _read_handle(scope, headers)
        client = scope.get("client")
        credential = self._authenticate(headers, str(client[0]) if client else "")
        return GatewayCaller(credential, handle, credential.id)

    def on_refusal(self, error: HoldfastError, caller: GatewayCaller | None) -> None:
        """Report a refused request."""
        self._options.on_refusal(error, caller.credential if caller is not None else None)

    async def handle_request(self, request: Request, http: HttpExchange[GatewayCaller]) -> None:
        """Answer one request of a client of either era."""
        try:
            self._check(http)
            await self._answer(request, http)
        except HoldfastError as error:
            self.on_refusal(error, http.caller)
            # An error of the protocol itself, such as an unsupported version, has its own status.
            status = http_status(error, modern=True) if isinstance(error, PeerError) else 0
            await send_error(http.send, error, request.id, status, challenge=self._options.challenge)

    async def _answer(self, request: Request, http: HttpExchange[GatewayCaller]) -> None:
        """Answer a request in the client's era."""
        meta = read_meta(request.params)
        can_stream = accepts(http.headers, "text/event-stream")
        if is_modern(meta, http.headers):
            await self._answer_modern(request, meta, http, can_stream=can_stream)
        elif request.method == "initialize":
            await self._initialize(request, http)
        else:
            served = self._find(http)
            if request.id in served.session.running:
                raise HoldfastError(
                    codes.INVALID_REQUEST,
                    "A request with this id is still in flight. Use a new id for each request.",
                )
            response = PostResponse(http.send, served.streams, can_stream=can_stream)
            if request.method == "ping":
                await response.send_result(result_line(request.id, {}))
                return
            ask = partial(served.requests.ask, response.send_line) if can_stream else cannot_ask
            call = ClientCall(meta, served.session.client_info, BackChannel(response.notify, ask))
            result = served.handler.answer(request.id, request.method, request.params, call)
            running = RunningRequest(response, http.receive, served.session, self._disconnects)
            await run_request(request.id, result, response, running)

    async def _answer_modern(
        self, request: Request, meta: JsonObject, http: HttpExchange[GatewayCaller], *, can_stream: bool
    ) -> None:
        check_mcp_headers(request, meta, http.headers)
        client_info = modern_client(meta)
        served = self.sessions.find_or_open_modern(http.caller.handle, http.caller.credential, client_info)
        if request.method == "tools/call":
            offered = await (await served.handler.offer()).tools()
            if offered.has_param_headers:
                check_param_headers(request, offered.param_headers_of, http.headers)
        response = AsgiResponse(http.send, can_stream=can_stream)
        call = ModernCall(meta, client_info, BackChannel(response.notify))
        result = served.handler.answer(request.id, request.method, request.params, call)
        running = RunningRequest(response, http.receive, None, self._disconnects)
        await run_request(request.id, result, response, running)

    async def _initialize(self, request: Request, http: HttpExchange[GatewayCaller]) -> None:
        """Open a session for a handshake-era client, and send it the session's id."""
        if http.caller.handle:
            raise HoldfastError(
                codes.BAD_HTTP,
                f"Handles are for clients of {MODERN_VERSIONS[-1]}. Use the path /mcp, without the header Holdfast-Session.",
            )
        client_info = read_client(request)
        served = self.sessions.open(http.caller.credential, client_info)
        served.session.back_channel = BackChannel(
            _no_notification, partial(served.requests.ask, served.streams.general.add), _pusher(served)
        )
        try:
            result = initialize_result(client_info, await served.handler.info())
        except BaseException as error:
            self.sessions.end(served, why_not_opened(error))
            raise
        await AsgiResponse(http.send, can_stream=False).send_result(
            result_line(request.id, result), headers=((b"mcp-session-id", served.session.key.encode()),)
        )

    async def handle_notification(
        self, notification: Notification, http: HttpExchange[GatewayCaller]
    ) -> None:
        """Handle a notification. Notifications of modern clients are ignored: they name no session."""
        self._check(http)
        if http.session_id is None:
            return
        served = self._find(http)
        if notification.method == MCP_CANCEL.method:
            try:
                request_id = msgspec.json.decode(notification.params, type=CancelParams).request_id
            except DECODE_ERRORS:
                raise HoldfastError(codes.BAD_ARGUMENT, "The cancellation has no valid requestId.") from None
            if (cancel := served.session.running.get(request_id)) is not None:
                cancel()
        else:
            await served.handler.notify(notification)

    def handle_response(self, message: Response | ErrorResponse, http: HttpExchange[GatewayCaller]) -> None:
        """Pass on a handshake-era client's answer to a server's request."""
        self._check(http)
        if http.session_id is not None:
            self._find(http).requests.receive(message)

    async def end_session(self, http: HttpExchange[GatewayCaller]) -> None:
        """End the session of a handshake-era client."""
        self._check(http)
        self.sessions.end(self._find(http), "the client ended it")
        await send_response(http.send, 204)

    def _check(self, http: HttpExchange[GatewayCaller]) -> None:
        """Raise if the credential is no longer valid, if the handle was not issued to it, or if a session of this host sent the request.

        The credential was valid before the body was read, but reading it may have taken a while.
        """
        self._options.recheck(http.caller.credential)
        sending_session_id = self._own_requests.session_of(http.headers)
        if sending_session_id and self._host.find_live(sending_session_id) is not None:
            raise HoldfastError(
                codes.INVALID_REQUEST,
                "A session of this Holdfast has this gateway as one of its servers. That would open sessions"
                " without end. Remove the entry from the list of servers.",
                hint="Remove the entry with this URL from .mcp.json or from your list of servers.",
            )
        if http.caller.handle:
            self.sessions.check_handle(http.caller.handle, http.caller.credential)

    def _find(self, http: HttpExchange[GatewayCaller]) -> ServedClient:
        return self.sessions.find(http.session_id, http.caller.credential)

    # Streams

    async def listen(self, http: HttpExchange[GatewayCaller]) -> None:
        """Send the events of a session's stream."""
        self._check(http)
        caller_id = http.caller.caller_id
        if not self._open_streams.try_acquire(caller_id):
            raise HoldfastError(codes.BUSY, "Too many streams are already open. Close one first.")
        try:
            await self._stream(http)
        finally:
            self._open_streams.release(caller_id)

    async def _stream(self, http: HttpExchange[GatewayCaller]) -> None:
        """Send events until the client disconnects, the session or the stream ends, or another response takes over the stream."""
        served = self._find(http)
        stream, after = served.streams.general, None
        if (event_id := http.headers.get("last-event-id")) is not None:
            position = served.streams.find(event_id)
            if position is None:
                raise HoldfastError(
                    codes.BAD_HTTP,
                    "The stream of this Last-Event-ID is no longer kept. Send GET without it.",
                )
            stream, after = position
        response = EventResponse(http.send)
        await response.start()
        signals = [
            asyncio.ensure_future(wait_for_disconnect(http.receive)),
            asyncio.ensure_future(served.session.ended.wait()),
            asyncio.ensure_future(stream.ended.wait()),
        ]
        served.session.open_streams += 1
        try:
            replaced = await stream.send_to(response.write, after)
            signals.append(asyncio.ensure_future(replaced.wait()))
            while not any(signal.done() for signal in signals) and stream.sends_to(response.write):
                await asyncio.wait(
                    signals,
                    timeout=self._http_limits.keepalive_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not any(signal.done() for signal in signals):
                    await response.keep_alive()
            await response.end()
        finally:
            served.session.open_streams -= 1
            stream.stop_sending_to(response.write)
            for signal in signals:
                signal.cancel()


def _read_handle(scope: MutableMapping[str, Any], headers: Headers) -> str:
    """The handle in the header `Holdfast-Session`, or else in the path; empty if there is none."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if path == "/mcp":
        return headers.get(HANDLE_HEADER, "")
    match = _PATH.fullmatch(path)
    if match is None:
        raise BadHeadError(404, "There is nothing at this path. The gateway is at /mcp.")
    return headers.get(HANDLE_HEADER) or match["handle"]


async def _no_notification(method: str, params: Any) -> None:
    """Send nothing: notifications outside of requests are sent with `push`."""


def _pusher(served: ServedClient) -> Notify:
    """A function that sends a notification on the stream for messages that belong to no request."""

    async def push(method: str, params: Any) -> None:
        await served.streams.general.add(notification_line(method, params))

    return push
