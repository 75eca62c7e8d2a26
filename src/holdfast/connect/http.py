"""Connect to a server by streamable HTTP: a peer's lines go out by POST, and answers come back in either form."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.egress import EVENTS, kind_of
from holdfast.connect.endpoint import Endpoint
from holdfast.connect.greeted import greeted
from holdfast.connect.hearing import Hearing
from holdfast.connect.incoming import Place, events, read_body, read_message
from holdfast.connect.mirrored import Mirrored
from holdfast.connect.outgoing import VERSION, Outgoing, read_outgoing
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.frame import ErrorResponse, Id, Malformed, Message, Request, Response
from holdfast.wire.mcp.client import Client
from holdfast.wire.mcp.eras import Era
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

SESSION = "Mcp-Session-Id"
_BOTH = {"accept": f"application/json, {EVENTS}", "content-type": "application/json"}
_ASIDE = 16  # answers and notifications that are on their way at once
_TRIES = 2  # to take up a stream that broke off
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
        self._asked: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._aside = asyncio.Semaphore(_ASIDE)
        self._introduced: asyncio.Task[None] | None = None
        self._session = ""
        self._version = ""
        self.failure: HoldfastError | None = None
        """Why the server is gone, where it is."""

    # What the peer says

    def write(self, data: bytes) -> None:
        """Bring a line to the server."""
        out = read_outgoing(data, self._mirrored)
        if out.takes_back is not None:
            asked = self._asked.pop(out.takes_back, None)
            if asked is not None:
                asked.cancel()
            if not self._session and not self._version:
                return  # no handshake: to hang up is to cancel
        task = self._start(self._ask(out) if out.is_request else self._tell(out))
        if out.is_request and out.id is not None:
            self._asked[out.id] = task
        elif out.method == "notifications/initialized":
            self._introduced = task

    def pause_reading(self) -> None:
        """Nothing: each stream waits for room by itself."""

    def resume_reading(self) -> None:
        """Nothing, too."""

    async def close(self) -> None:
        """Hang up, and give the session back."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._session and self.failure is None:
            try:
                async with (
                    asyncio.timeout(self._terms.end_seconds),
                    self._endpoint.ask("DELETE", headers=self._headers()),
                ):
                    pass
            except (HoldfastError, TimeoutError) as error:
                log.debug("session not given back", extra={"reason": str(error)})

    def listen(self, client: Client, asks: Asks) -> None:
        """Hear what the server says unasked, from now on."""
        if client.greeting.era is Era.HANDSHAKE:
            self._start(self._listen())
        elif _tells_of_tools(client.greeting.capabilities):
            self._start(self._subscribe(client, asks))

    # One request

    async def _ask(self, out: Outgoing) -> None:
        assert out.id is not None
        try:
            await self._after_introduction()
            async with self._post(out) as response:
                await self._take_answer(out, response)
        except HoldfastError as error:
            self._peer.undelivered(out.id, error)
            self._note(error)
        finally:
            self._asked.pop(out.id, None)

    async def _take_answer(self, out: Outgoing, response: httpx2.Response) -> None:
        if not response.is_success:
            self._hear(out, await self._refusal(out, response))
            return
        if out.method == "initialize":
            self._session = response.headers.get(SESSION, "")
        match kind_of(response):
            case "application/json":
                message = await read_message(await read_body(response), self._terms.limits)
                if not _answers(message, out.id):
                    reason = message.reason if isinstance(message, Malformed) else "It answers another request."
                    raise HoldfastError(codes.BAD_ANSWER, f"The answer cannot be read. {reason}")
                self._hear(out, message)
            case kind if kind == EVENTS:
                await self._follow(out, response)
            case kind:
                what = f"of type {kind[:80]!r}" if kind else "without a type"
                raise HoldfastError(codes.BAD_ANSWER, f"{self._endpoint.place} gave an answer {what}.")

    async def _refusal(self, out: Outgoing, response: httpx2.Response) -> ErrorResponse:
        """The error that the server gave with its status; without one, what the status means is raised."""
        said: Message | None = None
        if kind_of(response) == "application/json":
            said = await read_message(await read_body(response), self._terms.limits)
        if self._session and response.status_code in _NO_SESSION and not _answers(said, out.id):
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"{self._endpoint.place} has forgotten the session."
            )
        if isinstance(said, ErrorResponse) and response.status_code != 401:
            return ErrorResponse(out.id, said.error)
        raise self._endpoint.refusal(response)

    async def _follow(self, out: Outgoing, response: httpx2.Response) -> None:
        """Read a stream up to the answer, taking it up again where the server breaks off and can go on."""
        place = Place()
        if await self._until_answered(out, response, place):
            return
        for _ in range(_TRIES):
            if not place.event_id:
                break
            await asyncio.sleep(place.retry_seconds)
            async with self._endpoint.ask("GET", headers=self._headers(place)) as again:
                if again.is_success and await self._until_answered(out, again, place):
                    return
        raise HoldfastError(codes.CONNECTION_CLOSED, f"{self._endpoint.place} broke off without an answer.")

    async def _until_answered(self, out: Outgoing, response: httpx2.Response, place: Place) -> bool:
        answered = False
        async with asyncio.timeout(None) as patience:
            try:
                async for line in events(response, place, self._terms.limits):
                    message = await read_message(line, self._terms.limits)
                    await self._room(message)
                    self._hear(out, message)
                    if _answers(message, out.id):
                        answered = True
                        # The server ends the stream now; if it does so soon, the connection can be used again.
                        patience.reschedule(asyncio.get_running_loop().time() + _DRAIN_SECONDS)
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                if not answered and not place.event_id:
                    raise
            except TimeoutError:
                pass
        return answered

    def _hear(self, out: Outgoing, message: Message) -> None:
        if isinstance(message, Response) and message.id == out.id:
            if out.method == "initialize":
                self._version = _version(message)
            elif out.method == "tools/list":
                self._mirrored.learn(message.result)
        self._peer.heard(message)

    # What is not answered

    async def _tell(self, out: Outgoing) -> None:
        try:
            async with asyncio.timeout(self._terms.connect_seconds), self._aside, self._post(out) as response:
                if not response.is_success:
                    raise self._endpoint.refusal(response)
        except (HoldfastError, TimeoutError) as error:
            log.warning(
                "message not delivered", extra={"place": self._endpoint.place, "reason": str(error)}
            )

    # What is said unasked

    async def _listen(self) -> None:
        """Keep the server's own stream open, where it has one; a server that is gone, or forgot us, is noticed here."""
        await self._after_introduction()
        place, tries = Place(), 0
        while True:
            try:
                async with self._endpoint.ask("GET", headers=self._headers(place)) as response:
                    if response.status_code == 404 and self._session:
                        raise HoldfastError(codes.CONNECTION_CLOSED, f"{self._endpoint.place} forgot the session.")
                    if not response.is_success or kind_of(response) != EVENTS:
                        return
                    tries = 0
                    async for line in events(response, place, self._terms.limits):
                        message = await read_message(line, self._terms.limits)
                        await self._room(message)
                        self._peer.heard(message)
            except HoldfastError as error:
                tries += 1
                if tries > _TRIES or error.code is not codes.CONNECTION_CLOSED:
                    self._note(error)
                    return
            await asyncio.sleep(place.retry_seconds)

    async def _subscribe(self, client: Client, asks: Asks) -> None:
        """Ask to be told when the tools change; after a pause nobody knows what changed meanwhile."""
        while True:
            try:
                await client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            except HoldfastError as error:
                log.debug("subscription ended", extra={"reason": error.message})
                return
            await asyncio.sleep(Place().retry_seconds)
            asks.tools_changed()

    # What all of them need

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("HTTP exchange crashed", exc_info=bug)
            self._note(HoldfastError(codes.CONNECTION_CLOSED, "The exchange failed unexpectedly."))

    def _note(self, error: HoldfastError) -> None:
        """A server that is gone is gone for all who wait."""
        if error.code is codes.CONNECTION_CLOSED and self.failure is None:
            self.failure = error
            self._peer.input_ended()

    async def _after_introduction(self) -> None:
        if self._introduced is not None and not self._introduced.done():
            await asyncio.wait([self._introduced])

    async def _room(self, message: Message) -> None:
        """A server that asks without end waits until we have answered."""
        while isinstance(message, Request) and len(self._tasks) > self._terms.limits.in_flight:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def _post(self, out: Outgoing) -> Any:
        headers = {**self._headers(), **_BOTH, **out.headers}
        return self._endpoint.ask("POST", body=out.body, headers=headers, context=out.context)

    def _headers(self, place: Place | None = None) -> Mapping[str, str]:
        headers = {"accept": EVENTS}
        if self._session:
            headers[SESSION] = self._session
        if self._version:
            headers[VERSION] = self._version
        if place is not None and place.event_id:
            headers["Last-Event-ID"] = place.event_id
        return headers


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


def _version(answer: Response) -> str:
    try:
        version = msgspec.json.decode(answer.result, type=_Initialized).protocol_version
    except msgspec.MsgspecError:
        return ""  # the greeting says what is wrong with it
    return version if version.isascii() and version.isprintable() else ""


def _answers(message: Message | None, identity: Id | None) -> bool:
    match message:
        case Response(id=answered) | ErrorResponse(id=answered):
            return answered == identity
        case Malformed(id=answered, is_answer=True):
            return False
        case _:
            return False


def _tells_of_tools(capabilities: JsonObject) -> bool:
    tools = capabilities.get("tools")
    return isinstance(tools, dict) and tools.get("listChanged") is True
