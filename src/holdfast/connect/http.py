"""Connect to a server by streamable HTTP: a peer's lines go out by POST, and answers come back in either form."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.endpoint import EVENTS, Endpoint
from holdfast.connect.errands import Errands
from holdfast.connect.greeted import greeted
from holdfast.connect.hearing import Hearing
from holdfast.connect.incoming import Place, messages, read_message
from holdfast.connect.mirrored import Mirrored
from holdfast.connect.outgoing import Outgoing, read_outgoing
from holdfast.connect.subscription import is_due, subscribe
from holdfast.connect.terms import Terms
from holdfast.connect.unasked import SESSION, TRIES, Standing, listen
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.frame import ErrorResponse, Id, Malformed, Message, Response
from holdfast.wire.http.exchange import BrokenOff, Reply
from holdfast.wire.mcp.client import Client
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

_BOTH = {"accept": f"application/json, {EVENTS}", "content-type": "application/json"}
_ASIDE = 16  # answers and notifications that are on their way at once
_DRAIN_SECONDS = 1.0
_NO_SESSION = (400, 404)


@asynccontextmanager
async def open_http(
    spec: ServerSpec, endpoint: Endpoint, *, asks: Asks, meta: JsonObject, terms: Terms
) -> AsyncIterator[Connection]:
    """Greet the server and listen to it; at the end its session is given back."""
    hearing = Hearing(asks)
    peer = Peer(handle=hearing.answer, notice=hearing.hear, limits=terms.limits)
    shell = HttpShell(peer, endpoint, terms)
    peer.connected(shell)
    try:
        try:
            client = await greeted(spec, peer, asks=asks, meta=meta, terms=terms)
        except HoldfastError as error:
            why = shell.failure or error
            raise HoldfastError(
                why.code, f"Could not connect to {spec.name!r}: {why.message}", **why.details
            ) from None
        shell.listen(client, asks)
        yield Connection(client, ended=peer.ended, hearing=hearing, last_words=str)
    finally:
        await peer.close()


class HttpShell:
    """The shell around a peer that speaks HTTP. Every line is a request of its own, in a task of its own."""

    def __init__(self, peer: Peer, endpoint: Endpoint, terms: Terms) -> None:
        self._peer = peer
        self._endpoint = endpoint
        self._terms = terms
        self._mirrored = Mirrored()
        self._asked: dict[Id, tuple[Outgoing, asyncio.Task[None]]] = {}
        self._errands = Errands(peer, terms.limits)
        self._aside = asyncio.Semaphore(_ASIDE)
        self._introduced: asyncio.Task[None] | None = None
        self._standing = Standing()

    @property
    def failure(self) -> HoldfastError | None:
        """Why the server is gone, where it is."""
        return self._errands.failure

    # What the peer says

    def write(self, data: bytes) -> None:
        """Bring a line to the server."""
        out = read_outgoing(data, self._mirrored)
        if out.takes_back is not None:
            asked, task = self._asked.pop(out.takes_back, (None, None))
            if task is not None:
                task.cancel()
            if asked is None or asked.modern:
                return  # to hang up is to cancel; before the modern era it has to be said
        task = self._errands.start(self._ask(out) if out.is_request else self._tell(out))
        if out.is_request and out.id is not None:
            self._asked[out.id] = (out, task)
        elif out.method == "notifications/initialized":
            self._introduced = task

    def pause_reading(self) -> None:
        """Nothing: each stream waits for room by itself."""

    def resume_reading(self) -> None:
        """Nothing, too."""

    async def close(self) -> None:
        """Hang up, and give the session back."""
        await self._errands.close()
        if self._standing.session and self._errands.failure is None:
            try:
                async with (
                    asyncio.timeout(self._terms.end_seconds),
                    self._endpoint.ask("DELETE", headers=self._standing.headers()),
                ):
                    pass
            except (HoldfastError, TimeoutError) as error:
                log.debug("session not given back", extra={"reason": str(error)})

    def listen(self, client: Client, asks: Asks) -> None:
        """Hear what the server says unasked, from now on."""
        if is_due(client):
            self._errands.start(subscribe(client, asks))
        elif self._standing.session:
            self._errands.start(self._listen())

    # One request

    async def _ask(self, out: Outgoing) -> None:
        assert out.id is not None
        try:
            await self._after_introduction()
            async with self._post(out) as reply:
                await self._take_answer(out, reply)
        except HoldfastError as error:
            self._peer.undelivered(out.id, error)
            if error.code is codes.CONNECTION_CLOSED:
                self._errands.gone(error)
        finally:
            self._asked.pop(out.id, None)

    async def _take_answer(self, out: Outgoing, reply: Reply) -> None:
        if not reply.is_success:
            self._hear(out, await self._refusal(out, reply))
            return
        if out.method == "initialize":
            session = reply.headers.get(SESSION.lower(), "")
            self._standing.session = session if session.isascii() and session.isprintable() else ""
        match reply.kind:
            case "application/json":
                message = await self._whole(reply)
                if isinstance(message, Malformed) or not _settles(message, out.id):
                    reason = (
                        message.reason if isinstance(message, Malformed) else "It is for another request."
                    )
                    raise HoldfastError(codes.BAD_ANSWER, f"The answer cannot be read. {reason}")
                self._hear(out, message)
            case kind if kind == EVENTS:
                await self._follow(out, reply)
            case kind:
                what = f"of type {kind[:80]!r}" if kind else "without a type"
                raise HoldfastError(codes.BAD_ANSWER, f"{self._endpoint.place} gave an answer {what}.")

    async def _whole(self, reply: Reply) -> Message:
        return await read_message(await reply.read(self._terms.limits.line_bytes), self._terms.limits)

    async def _refusal(self, out: Outgoing, reply: Reply) -> ErrorResponse:
        """The error that the server gave with its status; without one, what the status means is raised."""
        said: Message | None = None
        if reply.kind == "application/json":
            said = await self._whole(reply)
        if self._standing.session and reply.status in _NO_SESSION and not _settles(said, out.id):
            raise HoldfastError(codes.CONNECTION_CLOSED, f"{self._endpoint.place} has forgotten the session.")
        if isinstance(said, ErrorResponse) and reply.status != 401:
            return ErrorResponse(out.id, said.error)
        raise self._endpoint.refusal(reply)

    async def _follow(self, out: Outgoing, reply: Reply) -> None:
        """Read a stream up to the answer, taking it up again where the server breaks off and can go on."""
        place = Place()
        tries, seen = 0, ""
        if await self._until_answered(out, reply, place):
            return
        while place.event_id and tries < TRIES:
            tries, seen = (tries + 1 if place.event_id == seen else 0), place.event_id
            await asyncio.sleep(place.retry_seconds)
            async with self._endpoint.ask("GET", headers=self._standing.headers(place)) as again:
                if again.is_success and await self._until_answered(out, again, place):
                    return
        raise HoldfastError(codes.CONNECTION_CLOSED, f"{self._endpoint.place} broke off without an answer.")

    async def _until_answered(self, out: Outgoing, reply: Reply, place: Place) -> bool:
        answered = False
        try:
            async with asyncio.timeout(None) as patience:
                async for message in messages(reply, place, self._terms.limits):
                    await self._errands.room(message)
                    self._hear(out, message)
                    if _settles(message, out.id):
                        answered = True
                        # The server ends the stream now; if it does so soon, the connection can be used again.
                        patience.reschedule(asyncio.get_running_loop().time() + _DRAIN_SECONDS)
        except BrokenOff:
            if not answered and not place.event_id:
                raise
        except TimeoutError:
            pass
        return answered

    def _hear(self, out: Outgoing, message: Message) -> None:
        if isinstance(message, Response) and message.id == out.id:
            if out.method == "initialize":
                self._standing.version = _version(message)
            elif out.method == "tools/list":
                self._mirrored.learn(message.result)
        self._peer.heard(message)

    # What is not answered

    async def _tell(self, out: Outgoing) -> None:
        try:
            async with asyncio.timeout(self._terms.connect_seconds), self._aside, self._post(out) as reply:
                if not reply.is_success:
                    raise self._endpoint.refusal(reply)
        except (HoldfastError, TimeoutError) as error:
            log.warning("message not delivered", extra={"place": self._endpoint.place, "reason": str(error)})

    async def _listen(self) -> None:
        await self._after_introduction()
        await listen(self._peer, self._endpoint, self._standing, self._errands, self._terms.limits)

    async def _after_introduction(self) -> None:
        if self._introduced is not None and not self._introduced.done():
            await asyncio.wait([self._introduced])

    def _post(self, out: Outgoing) -> AbstractAsyncContextManager[Reply]:
        headers = {**self._standing.headers(), **_BOTH, **out.headers}
        return self._endpoint.ask("POST", body=out.body, headers=headers, context=out.context)


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


def _version(answer: Response) -> str:
    try:
        version = msgspec.json.decode(answer.result, type=_Initialized).protocol_version
    except msgspec.MsgspecError:
        return ""  # the greeting says what is wrong with it
    return version if version.isascii() and version.isprintable() else ""


def _settles(message: Message | None, identity: Id | None) -> bool:
    """Whether this is what was waited for: an answer, be it one that cannot be read."""
    match message:
        case Response(id=answered) | ErrorResponse(id=answered) | Malformed(id=answered, is_answer=True):
            return answered == identity
        case _:
            return False
