"""Receive HTTP requests with MCP messages: check the head, read and parse the body, and pass the message to a handler.

Every caller has a share of the requests in flight, of the memory for bodies, and of the time to parse them.
"""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any, Generic, Protocol, TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.http.allowed_hosts import AllowedHosts
from holdfast.wire.http.bodies import Bodies, discard_body, parse_body
from holdfast.wire.http.connection import Connection, connection_of, report_refusal
from holdfast.wire.http.limits import CallerQuota, HttpLimits
from holdfast.wire.http.request import (
    ClientDisconnectedError,
    Headers,
    Receive,
    Send,
    check_method,
    read_headers,
)
from holdfast.wire.http.response import send_error, send_response
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.messages import (
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
)
from holdfast.wire.task_turns import current_turns, run_in_turns

_MAX_THROTTLES = 1024  # how many callers are remembered

Scope = MutableMapping[str, Any]


class Caller(Protocol):
    """Who sent a request."""

    @property
    def caller_id(self) -> str:
        """Identifies the caller: the limits per caller apply to all requests with the same id. Empty if callers cannot be told apart."""
        ...


C = TypeVar("C", bound=Caller)


class HttpExchange(Generic[C]):
    """One HTTP request with an accepted head, and the ASGI functions to read its body and to answer."""

    __slots__ = ("body", "caller", "headers", "receive", "send")

    def __init__(self, headers: Headers, caller: C, receive: Receive, send: Send) -> None:
        self.headers = headers
        self.caller = caller
        self.body = b""
        self.receive = receive
        self.send = send

    @property
    def session_id(self) -> str | None:
        """The `Mcp-Session-Id` of a handshake-era client."""
        return self.headers.get("mcp-session-id")


class MessageHandler(Protocol[C]):
    """Handles the received messages. A `HoldfastError` that one of its methods raises is sent to the client."""

    def identify(self, scope: Scope, headers: Headers) -> C:
        """Find out from the head of a request who sent it. Raise if there is nothing at its path, or if the caller is refused."""
        ...

    async def handle_request(self, request: Request, http: HttpExchange[C]) -> None:
        """Answer a request. The request is in flight until this method returns."""
        ...

    async def handle_notification(self, notification: Notification, http: HttpExchange[C]) -> None: ...

    def handle_response(self, message: Response | ErrorResponse, http: HttpExchange[C]) -> None:
        """Take the client's answer to a request of this server."""
        ...

    async def listen(self, http: HttpExchange[C]) -> None:
        """Answer GET with an event stream."""
        ...

    async def end_session(self, http: HttpExchange[C]) -> None:
        """Answer DELETE: end the session of the request."""
        ...

    def on_refusal(self, error: HoldfastError, caller: C | None) -> None:
        """Record a refusal before the receiver sends its error. The caller is None if it is not known."""
        ...


class HttpReceiver(Generic[C]):
    """Receives the HTTP requests of one ASGI application."""

    def __init__(
        self,
        handler: MessageHandler[C],
        *,
        allowed_hosts: AllowedHosts,
        http_limits: HttpLimits,
        limits: Limits,
        challenge: str = "Holdfast-Context",
    ) -> None:
        """`challenge` is the `WWW-Authenticate` header of a response with status 401."""
        self._handler = handler
        self._allowed_hosts = allowed_hosts
        self._http_limits = http_limits
        self._limits = limits
        self._challenge = challenge
        self._in_flight = CallerQuota(total=http_limits.in_flight, share=http_limits.in_flight_per_caller)
        self._all_answered = asyncio.Event()
        self._is_draining = False
        self._throttles: dict[str, LoopThrottle] = {}  # by caller, the most recently used at the end
        self.bodies = Bodies(http_limits)

    async def receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. If its head is refused, its body is neither stored nor parsed."""
        if scope["type"] != "http":
            raise RuntimeError(f"This application supports http, not {scope['type']}.")
        connection = connection_of(scope)
        try:
            http = self._read_head(scope, receive, send)
        except HoldfastError as error:
            report_refusal(scope)
            await discard_body(receive, self._http_limits)
            await self._send_error(send, error)
            return
        throttle = self._throttle_of(http.caller.caller_id, connection)
        work = self._receive(scope, http, throttle, connection)
        if connection is not None:
            # A server that passes connections lets the requests of a caller take turns itself.
            await work
            return
        # Other tasks that work for this request take their turns from `current_turns`.
        current_turns.set(lambda: throttle.task_turns)
        await run_in_turns(work, lambda: throttle.task_turns)

    async def _receive(
        self, scope: Scope, http: HttpExchange[C], throttle: LoopThrottle, connection: Connection | None
    ) -> None:
        """Answer a request whose head was accepted: read and parse its body, and pass the message to the handler."""
        has_unread_body = scope["method"] == "POST"
        try:
            match scope["method"]:
                case "POST":
                    async with self.bodies.read(
                        http.receive, http.headers, http.caller.caller_id
                    ) as http.body:
                        has_unread_body = False
                        if connection is not None:
                            connection.request_received()
                        message = await parse_body(http.body, self._limits, throttle)
                        await self._handle(message, http)
                case "GET":
                    if connection is not None:
                        connection.request_received()
                    await self._handler.listen(http)
                case _:
                    await self._handler.end_session(http)
        except HoldfastError as error:
            self._handler.on_refusal(error, http.caller)
            if has_unread_body:
                report_refusal(scope)
                await discard_body(http.receive, self._http_limits)
            await self._send_error(http.send, error)
        except ClientDisconnectedError:
            pass

    async def wait_until_answered(self, seconds: float) -> None:
        """Wait until no request is in flight, for at most `seconds`."""
        self._is_draining = True
        if self._in_flight.used:
            self._all_answered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), seconds)

    def _read_head(self, scope: Scope, receive: Receive, send: Send) -> HttpExchange[C]:
        """Check everything that can be checked before the body is read."""
        caller: C | None = None
        try:
            headers = read_headers(scope["headers"])
            self._allowed_hosts.check(headers)
            caller = self._handler.identify(scope, headers)
            check_method(scope["method"], headers)
        except HoldfastError as error:
            self._handler.on_refusal(error, caller)
            raise
        return HttpExchange(headers, caller, receive, send)

    def _throttle_of(self, caller_id: str, connection: Connection | None) -> LoopThrottle:
        """The throttle that all connections of a caller share."""
        if not caller_id and connection is not None:
            return connection.throttle  # callers cannot be told apart, so the client's address is charged
        throttle = self._throttles.pop(caller_id, None) or LoopThrottle(
            caller_id, burst_seconds=BURST_SECONDS
        )
        self._throttles[caller_id] = throttle
        if len(self._throttles) > _MAX_THROTTLES:
            del self._throttles[next(iter(self._throttles))]
        if connection is not None:
            connection.throttle = throttle
        return throttle

    async def _handle(self, message: Message | None, http: HttpExchange[C]) -> None:
        match message:
            case Request():
                await self._handle_request(message, http)
            case Notification():
                await self._handler.handle_notification(message, http)
                await send_response(http.send, 202)
            case Response() | ErrorResponse():
                self._handler.handle_response(message, http)
                await send_response(http.send, 202)
            case Malformed():
                error = HoldfastError(message.code, message.reason)
                self._handler.on_refusal(error, http.caller)
                await send_error(http.send, error, message.id, status=400)
            case None:
                raise HoldfastError(codes.PARSE_ERROR, "The body is empty.")

    async def _handle_request(self, request: Request, http: HttpExchange[C]) -> None:
        caller_id = http.caller.caller_id
        if not self._in_flight.try_acquire(caller_id):
            error = self._busy(caller_id)
            self._handler.on_refusal(error, http.caller)
            await send_error(http.send, error, request.id)
            return
        try:
            await self._handler.handle_request(request, http)
        finally:
            self._in_flight.release(caller_id)
            if self._is_draining and not self._in_flight.used:
                self._all_answered.set()

    def _busy(self, caller_id: str) -> HoldfastError:
        in_flight = f"{self._in_flight.total} requests"
        if self._in_flight.would_exceed_share(caller_id):
            in_flight = f"{self._in_flight.share} requests from this caller"
        return HoldfastError(codes.BUSY, f"{in_flight} are already in flight. Wait for an answer first.")

    async def _send_error(self, send: Send, error: HoldfastError) -> None:
        await send_error(send, error, challenge=self._challenge)
