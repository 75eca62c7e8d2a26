"""One address that speaks MCP: POST asks, GET listens, DELETE says goodbye."""

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.frame import Id, Malformed, Message, Notification, Request, parse, result_line
from holdfast.wire.http.agree import check_agreement, check_mirrors
from holdfast.wire.http.answer import Watch, answer
from holdfast.wire.http.body import Gone, gone, read_body
from holdfast.wire.http.gate import LOCAL, Gate
from holdfast.wire.http.headers import Headers, accepts, read_headers
from holdfast.wire.http.reply import Receive, Reply, Send, refuse, respond
from holdfast.wire.http.sessions import HttpSession, HttpSessions
from holdfast.wire.http.terms import USUAL, Terms
from holdfast.wire.mcp.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSION_KEY
from holdfast.wire.mcp.mirrors import Mirrors
from holdfast.wire.mcp.server import Exchange, Service, answer_one, read_meta, shake_hands
from holdfast.wire.peer import MCP
from holdfast.wire.strict import DECODE_ERRORS

log = logging.getLogger(__name__)

_SESSION_ID = b"mcp-session-id"
_OFF_LOOP = 1024 * 1024


class HttpService(Service, Protocol):
    """What stands behind the address, and what it wants to know of HTTP."""

    def mirrors_of(self, tool: str) -> Mirrors:
        """The arguments of a tool that headers must repeat."""
        ...

    def owner_of(self, headers: Headers) -> str:
        """Who sends this, as far as it matters for whose session is whose; empty when it does not."""
        ...

    def ended(self, session_id: str) -> None:
        """A client of the handshake era is gone."""
        ...


class HttpApp:
    """The ASGI application around a service. It carries; what is believed of what it carries, others decide."""

    def __init__(
        self,
        service: HttpService,
        *,
        gate: Gate = LOCAL,
        terms: Terms = USUAL,
        path: str = "/mcp",
        limits: Limits = DEFAULT,
    ) -> None:
        self._service = service
        self._gate = gate
        self._terms = terms
        self._path = path
        self._limits = limits
        self._in_flight = 0
        self.sessions = HttpSessions(terms, service.ended)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request; a failure of ours is told blandly."""
        if scope["type"] != "http":
            raise RuntimeError(f"This application speaks http, not {scope['type']}.")
        self._in_flight += 1
        try:
            await self._route(scope, receive, send)
        except HoldfastError as error:
            await refuse(send, error)
        except Gone:
            pass
        finally:
            self._in_flight -= 1

    def close(self) -> None:
        """End every session, and with it every stream."""
        self.sessions.end_all()

    async def _route(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = read_headers(scope["headers"])
        self._gate.check(headers)
        if scope["path"] != self._path:
            await respond(send, 404)
            return
        match scope["method"]:
            case "POST":
                await self._post(headers, receive, send)
            case "GET":
                await self._listen(headers, receive, send)
            case "DELETE":
                self.sessions.end(self._session(headers))
                await respond(send, 204)
            case _:
                await respond(send, 405, b"", ((b"allow", b"DELETE, GET, POST"),))

    # Asking

    async def _post(self, headers: Headers, receive: Receive, send: Send) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            await refuse(
                send, HoldfastError(codes.BAD_HTTP, "The body must be application/json."), status=415
            )
            return
        if not accepts(headers, "application/json"):
            await refuse(send, HoldfastError(codes.BAD_HTTP, "The answer is application/json."), status=406)
            return
        body = await read_body(receive, headers, self._terms)
        match await self._parsed(body):
            case Request() as request:
                await self._ask(request, Exchange(headers=headers, body=body), receive, send)
            case Notification() as notification:
                self._tell(notification, headers)
                await respond(send, 202)
            case Malformed() as malformed:
                await refuse(send, HoldfastError(malformed.code, malformed.reason), malformed.id, status=400)
            case None:
                await refuse(send, HoldfastError(codes.PARSE_ERROR, "The body is empty."), status=400)
            case _:  # an answer: this server asked nothing
                await respond(send, 202)

    async def _parsed(self, body: bytes) -> Message | None:
        if len(body) > _OFF_LOOP:
            return await asyncio.to_thread(parse, body, self._limits)
        return parse(body, self._limits)

    async def _ask(self, request: Request, exchange: Exchange, receive: Receive, send: Send) -> None:
        session: HttpSession | None = None
        try:
            if self._in_flight > self._terms.in_flight:
                raise HoldfastError(codes.BUSY, f"{self._terms.in_flight} requests are in flight already.")
            meta = read_meta(request.params)
            if _is_modern(meta, exchange.headers):
                check_agreement(request, meta, exchange.headers)
                if exchange.headers["mcp-protocol-version"] in MODERN_VERSIONS:
                    check_mirrors(request, self._service.mirrors_of, exchange.headers)
            elif request.method == "initialize":
                await self._greet(request, exchange.headers, send)
                return
            else:
                session = self._session(exchange.headers)
                exchange = msgspec.structs.replace(exchange, session_id=session.session_id)
                if request.id in session.running:
                    raise HoldfastError(codes.INVALID_REQUEST, "A request with this id is still in flight.")
        except HoldfastError as error:
            await refuse(send, error, request.id)
            return
        reply = Reply(send, streams=accepts(exchange.headers, "text/event-stream"))
        caller = session.caller if session is not None else None
        result = answer_one(self._service, request, caller, reply.notify, exchange)
        await answer(request.id, result, reply, Watch(reply, receive, session, self._terms))

    async def _greet(self, request: Request, headers: Headers, send: Send) -> None:
        caller, told = shake_hands(self._service, request)
        session = self.sessions.open(caller, self._service.owner_of(headers))
        reply = Reply(send, streams=False)
        await reply.finish(
            result_line(request.id, told), headers=((_SESSION_ID, session.session_id.encode()),)
        )

    def _tell(self, notification: Notification, headers: Headers) -> None:
        if headers.get("mcp-session-id") is None:
            # Every modern request stands alone: there is nothing that a notification could be about.
            return
        session = self._session(headers)
        if notification.method == MCP.cancel_method:
            try:
                session.cancel(msgspec.json.decode(notification.params, type=_TakeBack).request_id)
            except DECODE_ERRORS:
                raise HoldfastError(codes.BAD_ARGUMENT, "A cancellation names no request.") from None
        elif notification.method != "notifications/initialized":
            self._service.hear(notification)

    def _session(self, headers: Headers) -> HttpSession:
        return self.sessions.find(headers.get("mcp-session-id"), self._service.owner_of(headers))

    # Listening

    async def _listen(self, headers: Headers, receive: Receive, send: Send) -> None:
        if headers.get("mcp-protocol-version") in MODERN_VERSIONS:
            await respond(send, 405, b"", ((b"allow", b"POST"),))
            return
        if not accepts(headers, "text/event-stream"):
            await refuse(send, HoldfastError(codes.BAD_HTTP, "The answer is text/event-stream."), status=406)
            return
        session = self._session(headers)
        if session.streams:
            await refuse(send, HoldfastError(codes.BAD_HTTP, "This session listens already."), status=409)
            return
        session.streams += 1
        try:
            await self._stream(session, Reply(send, streams=True), receive)
        finally:
            session.streams -= 1

    async def _stream(self, session: HttpSession, reply: Reply, receive: Receive) -> None:
        await reply.still_here()
        over = [asyncio.ensure_future(gone(receive)), asyncio.ensure_future(session.ended.wait())]
        try:
            while not any(task.done() for task in over):
                line = asyncio.ensure_future(session.outbox.get())
                await asyncio.wait(
                    [line, *over], timeout=self._terms.quiet_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if line.done():
                    await reply.event(line.result())
                else:
                    line.cancel()
                    await reply.still_here()
            await reply.end()
        finally:
            for task in over:
                task.cancel()


class _TakeBack(msgspec.Struct, rename="camel"):
    request_id: Id


def _is_modern(meta: JsonObject, headers: Headers) -> bool:
    """Whether a request stands alone: by what it says, or by the version in its header."""
    said = headers.get("mcp-protocol-version")
    return VERSION_KEY in meta or (said is not None and said not in HANDSHAKE_VERSIONS)
