"""Connect to a server by the old SSE transport: one stream brings everything back, lines go out by POST."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.endpoint import EVENTS, Endpoint
from holdfast.connect.errands import Errands
from holdfast.connect.greeted import greeted
from holdfast.connect.hearing import Hearing
from holdfast.connect.incoming import Place, events, read_message
from holdfast.connect.mirrored import Mirrored
from holdfast.connect.outgoing import Outgoing, read_outgoing
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import ServerSpec
from holdfast.wire.http.url import Url
from holdfast.wire.mcp.eras import Era
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

_ASIDE = 16  # lines that are on their way at once


@asynccontextmanager
async def open_sse(
    spec: ServerSpec, endpoint: Endpoint, *, asks: Asks, meta: JsonObject, terms: Terms
) -> AsyncIterator[Connection]:
    """Open the stream, learn where to send, and greet the server."""
    hearing = Hearing(asks)
    peer = Peer(handle=hearing.answer, notice=hearing.hear, limits=terms.limits)
    shell = SseShell(peer, endpoint, terms)
    peer.connected(shell)
    try:
        try:
            await shell.begin()
            client = await greeted(spec, peer, asks=asks, meta=meta, terms=terms, likely=Era.HANDSHAKE)
        except HoldfastError as error:
            why = shell.failure or error
            raise HoldfastError(
                why.code, f"Could not connect to {spec.name!r}: {why.message}", **why.details
            ) from None
        yield Connection(client, ended=peer.ended, hearing=hearing, last_words=str)
    finally:
        await peer.close()


class SseShell:
    """The shell around a peer whose server has one stream for all it says."""

    def __init__(self, peer: Peer, endpoint: Endpoint, terms: Terms) -> None:
        self._peer = peer
        self._endpoint = endpoint
        self._terms = terms
        self._errands = Errands(peer, terms.limits)
        self._aside = asyncio.Semaphore(_ASIDE)
        self._target: asyncio.Future[Url] = asyncio.get_running_loop().create_future()

    @property
    def failure(self) -> HoldfastError | None:
        """Why the server is gone, where it is."""
        return self._errands.failure

    async def begin(self) -> None:
        """Open the stream and wait for the address to send to."""
        reading = self._errands.start(self._read())
        done, _ = await asyncio.wait(
            [self._target, reading],
            timeout=self._terms.connect_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not done:
            raise HoldfastError(
                codes.TIMEOUT,
                f"The server did not introduce itself within {self._terms.connect_seconds:g} s.",
            )
        if not self._target.done():
            raise self.failure or HoldfastError(codes.CONNECTION_CLOSED, "The stream ended at once.")

    def write(self, data: bytes) -> None:
        """Bring a line to the server."""
        self._errands.start(self._post(read_outgoing(data, Mirrored())))

    def pause_reading(self) -> None:
        """Nothing: the stream waits for room by itself."""

    def resume_reading(self) -> None:
        """Nothing, too."""

    async def close(self) -> None:
        """Hang up."""
        await self._errands.close()

    async def _read(self) -> None:
        try:
            async with self._endpoint.ask("GET", headers={"accept": EVENTS}) as reply:
                if not reply.is_success:
                    raise self._endpoint.refusal(reply)
                if reply.kind != EVENTS:
                    raise HoldfastError(codes.BAD_ANSWER, f"{self._endpoint.place} gave no stream of events.")
                limits = self._terms.limits
                async for event in events(reply, Place(), limits):
                    if event.name == "endpoint":
                        self._learn(event.data.decode("utf-8", "replace"))
                    elif event.name == "message":
                        message = await read_message(event.data, limits)
                        await self._errands.room(message)
                        self._peer.heard(message)
            raise HoldfastError(codes.CONNECTION_CLOSED, f"{self._endpoint.place} ended its stream.")
        except HoldfastError as error:
            self._errands.gone(error)

    def _learn(self, reference: str) -> None:
        url = self._endpoint.beside(reference)
        if url is None:
            raise HoldfastError(
                codes.BAD_ANSWER,
                f"{self._endpoint.place} wants its messages sent elsewhere: {reference[:200]!r}.",
            )
        if not self._target.done():
            self._target.set_result(url)

    async def _post(self, out: Outgoing) -> None:
        try:
            headers = {"content-type": "application/json", **out.headers}
            async with (
                asyncio.timeout(self._terms.connect_seconds),
                self._aside,
                self._endpoint.ask(
                    "POST", body=out.body, headers=headers, context=out.context, url=self._target.result()
                ) as reply,
            ):
                if not reply.is_success:
                    raise self._endpoint.refusal(reply)
        except TimeoutError:
            self._fail(out, HoldfastError(codes.TIMEOUT, f"{self._endpoint.place} took no message in time."))
        except HoldfastError as error:
            self._fail(out, error)

    def _fail(self, out: Outgoing, error: HoldfastError) -> None:
        if out.is_request and out.id is not None:
            self._peer.undelivered(out.id, error)
        else:
            log.warning(
                "message not delivered", extra={"place": self._endpoint.place, "reason": error.message}
            )
        if error.code is codes.CONNECTION_CLOSED:
            self._errands.gone(error)
