"""The ASGI application: POST sends a message, GET opens an event stream, DELETE ends a session."""

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.wire.frame import Malformed, Message, Notification, Request, parse_line, result_line
from holdfast.wire.http.allowed_hosts import LOOPBACK_ONLY, AllowedHosts
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, HttpLimits
from holdfast.wire.http.mcp_headers import check_mcp_headers, check_param_headers
from holdfast.wire.http.request import (
    ClientDisconnectedError,
    Headers,
    Receive,
    Send,
    accepts,
    read_body,
    read_headers,
    wait_for_disconnect,
)
from holdfast.wire.http.response import AsgiResponse, send_error, send_response
from holdfast.wire.http.running_request import RunningRequest, run_request
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from holdfast.wire.mcp.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSION_KEY
from holdfast.wire.mcp.server import HttpRequest, Service, answer_request, initialize, read_meta
from holdfast.wire.mcp.tools import ParamHeader
from holdfast.wire.peer import MCP_CANCEL, CancelParams
from holdfast.wire.strict_json import DECODE_ERRORS

log = logging.getLogger(__name__)

_SESSION_ID = b"mcp-session-id"
_THREAD_BYTES = 1024 * 1024  # a larger body is parsed in a thread


class HttpService(Service, Protocol):
    """An MCP service that can be served over HTTP."""

    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that the client must repeat in headers."""
        ...

    def session_owner(self, headers: Headers) -> str:
        """Who owns a session opened with these headers; empty if sessions have no owners."""
        ...

    def on_session_end(self, session_id: str) -> None:
        """Called when the session of a handshake-era client has ended."""
        ...


class HttpApp:
    """The ASGI application that serves a service. Authentication is left to the service."""

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
        self._in_flight = 0
        self.sessions = HttpSessions(http_limits, service.on_session_end)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            raise RuntimeError(f"This application supports http, not {scope['type']}.")
        self._in_flight += 1
        try:
            await self._route(scope, receive, send)
        except HoldfastError as error:
            await send_error(send, error)
        except ClientDisconnectedError:
            pass
        finally:
            self._in_flight -= 1

    def close(self) -> None:
        """End every session and its streams."""
        self.sessions.end_all()

    async def _route(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = read_headers(scope["headers"])
        self._allowed_hosts.check(headers)
        if scope["path"] != self._path:
            await send_response(send, 404)
            return
        match scope["method"]:
            case "POST":
                await self._post(headers, receive, send)
            case "GET":
                await self._listen(headers, receive, send)
            case "DELETE":
                self.sessions.end(self._session(headers))
                await send_response(send, 204)
            case _:
                await send_response(send, 405, b"", ((b"allow", b"DELETE, GET, POST"),))

    async def _post(self, headers: Headers, receive: Receive, send: Send) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "The body must be application/json."), status=415
            )
            return
        if not accepts(headers, "application/json"):
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "Accept must allow application/json."), status=406
            )
            return
        body = await read_body(receive, headers, self._http_limits)
        match await self._parse(body):
            case Request() as request:
                await self._handle_request(request, HttpRequest(headers=headers, body=body), receive, send)
            case Notification() as notification:
                self._handle_notification(notification, headers)
                await send_response(send, 202)
            case Malformed() as malformed:
                await send_error(
                    send, HoldfastError(malformed.code, malformed.reason), malformed.id, status=400
                )
            case None:
                await send_error(send, HoldfastError(codes.PARSE_ERROR, "The body is empty."), status=400)
            case _:  # a response; ignored, because this server sends no requests
                await send_response(send, 202)

    async def _parse(self, body: bytes) -> Message | None:
        if len(body) > _THREAD_BYTES:
            return await asyncio.to_thread(parse_line, body, self._limits)
        return parse_line(body, self._limits)

    async def _handle_request(
        self, request: Request, http: HttpRequest, receive: Receive, send: Send
    ) -> None:
        session: HttpSession | None = None
        try:
            if self._in_flight > self._http_limits.in_flight:
                raise HoldfastError(
                    codes.BUSY, f"{self._http_limits.in_flight} requests are already in flight."
                )
            meta = read_meta(request.params)
            if _is_modern(meta, http.headers):
                check_mcp_headers(request, meta, http.headers)
                if http.headers["mcp-protocol-version"] in MODERN_VERSIONS:
                    check_param_headers(request, self._service.param_headers_of, http.headers)
            elif request.method == "initialize":
                await self._initialize(request, http.headers, send)
                return
            else:
                session = self._session(http.headers)
                http = msgspec.structs.replace(http, session_id=session.session_id)
                if request.id in session.running:
                    raise HoldfastError(codes.INVALID_REQUEST, "A request with this id is still in flight.")
        except HoldfastError as error:
            await send_error(send, error, request.id)
            return
        response = AsgiResponse(send, can_stream=accepts(http.headers, "text/event-stream"))
        client = session.client if session is not None else None
        result = answer_request(self._service, request, client, response.notify, http)
        await run_request(
            request.id, result, response, RunningRequest(response, receive, session, self._http_limits)
        )

    async def _initialize(self, request: Request, headers: Headers, send: Send) -> None:
        client, result = initialize(self._service, request)
        session = self.sessions.open(client, self._service.session_owner(headers))
        response = AsgiResponse(send, can_stream=False)
        await response.send_result(
            result_line(request.id, result), headers=((_SESSION_ID, session.session_id.encode()),)
        )

    def _handle_notification(self, notification: Notification, headers: Headers) -> None:
        if headers.get("mcp-session-id") is None:
            # Modern clients have no session, so there is nothing that a notification could change.
            return
        session = self._session(headers)
        if notification.method == MCP_CANCEL.method:
            try:
                session.cancel(msgspec.json.decode(notification.params, type=CancelParams).request_id)
            except DECODE_ERRORS:
                raise HoldfastError(codes.BAD_ARGUMENT, "The cancellation has no valid requestId.") from None
        elif notification.method != "notifications/initialized":
            self._service.on_notification(notification)

    def _session(self, headers: Headers) -> HttpSession:
        return self.sessions.find(headers.get("mcp-session-id"), self._service.session_owner(headers))

    async def _listen(self, headers: Headers, receive: Receive, send: Send) -> None:
        if headers.get("mcp-protocol-version") in MODERN_VERSIONS:
            await send_response(send, 405, b"", ((b"allow", b"POST"),))
            return
        if not accepts(headers, "text/event-stream"):
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "Accept must allow text/event-stream."), status=406
            )
            return
        session = self._session(headers)
        if session.is_listening:
            await send_error(
                send, HoldfastError(codes.BAD_HTTP, "This session already has a stream."), status=409
            )
            return
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


def _is_modern(meta: JsonObject, headers: Headers) -> bool:
    """Whether a request is of the modern era, by its `_meta` or its version header."""
    version = headers.get("mcp-protocol-version")
    return VERSION_KEY in meta or (version is not None and version not in HANDSHAKE_VERSIONS)
