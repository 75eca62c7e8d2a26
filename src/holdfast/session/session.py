"""The owner of one session: it opens its links, passes calls on, and closes what it opened."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.connect.call import Answer, call, failed
from holdfast.connect.catalog import Catalog, Offer, catalog, may_be_of
from holdfast.connect.hearing import Progress
from holdfast.connect.links import Links
from holdfast.connect.scope import Scope, current_scope
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Outcome, ServersResolved, SessionClosed, SessionOpened, TrustLowered
from holdfast.model.ids import new_call_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Caution, Refusal, Resolution, Stage
from holdfast.model.server import ServerSpec
from holdfast.model.trust import Trust
from holdfast.resolve.pins import Held, Sifted
from holdfast.session.listing import Listing
from holdfast.session.outlast import outlast
from holdfast.session.permission import kind_of
from holdfast.session.record import Record
from holdfast.store.appender import Also
from holdfast.wire.mcp.tools import Tool

log = logging.getLogger(__name__)

_PAGES = 1000

CANCELLED = replace(
    failed(HoldfastError(codes.CANCELLED, "The call was cancelled.")), outcome=Outcome.CANCELLED
)

CLOSED = replace(
    failed(HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")), outcome=Outcome.CANCELLED
)

Permit = Callable[[ToolCall, Offer], Awaitable[Answer | None]]
Resolve = Callable[[SessionContext], Awaitable[Resolution]]
Screen = Callable[[ServerSpec, Sequence[Tool]], Awaitable[Sifted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a host lends its sessions."""

    links: Links
    terms: Terms
    resolve: Resolve
    screen: Screen


class Session:
    """One session. Calls may come from any task; whoever opened it closes it."""

    def __init__(self, scope: Scope, resolution: Resolution, record: Record, means: Means) -> None:
        self.scope = scope
        self._resolution = resolution
        self._record = record
        self._means = means
        self._listings: dict[str, Listing] = {}
        self._catalog = Catalog()
        self._lowering = asyncio.Lock()
        self._half_lowered = False
        """Whether its trust was lowered here and could not be stored, on a full disk say."""
        self._noted: list[Refusal] = []
        self._standing: ServersResolved | None = None
        self._noting = asyncio.Lock()
        self._calls: set[asyncio.Task[Answer]] = set()
        self._closing = False

    @property
    def context(self) -> SessionContext:
        """Who this session is."""
        return self.scope.context

    @property
    def record(self) -> Record:
        """Where all that happens is written."""
        return self._record

    @property
    def up(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return tuple(name for name, listing in self._listings.items() if listing.sifted is not None)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        failed = (listing.refusal for listing in self._listings.values())
        return (*self._resolution.refusals, *(refusal for refusal in failed if refusal is not None))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What there is to know about servers that stand: what they claimed to be, what their tools tried to hide."""
        flags = (
            Caution(server=name, stage=Stage.CONNECT, text=flag)
            for name, listing in self._listings.items()
            if listing.sifted is not None
            for flag in listing.sifted.flags
        )
        return (*self._resolution.cautions, *flags)

    @property
    def held_back(self) -> Mapping[str, tuple[Held, ...]]:
        """The tools that wait for approval, by server."""
        listings = self._listings.items()
        return {name: listing.sifted.held for name, listing in listings if listing.sifted is not None}

    @property
    def starting(self) -> tuple[str, ...]:
        """The servers that are not up yet."""
        return tuple(name for name, listing in self._listings.items() if listing.starting)

    def server(self, name: str) -> ServerSpec:
        """One of the session's servers."""
        listing = self._listings.get(name)
        if listing is None:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.")
        return listing.spec

    async def open(self) -> None:
        """Start all of the session's servers at once; `ready` waits for them."""
        context = self.context
        await self._record.add(
            SessionOpened(cwd=context.cwd, roots=context.roots, trust_level=context.trust_level)
        )
        self._start()
        await self._note(final=False)

    async def ready(self) -> None:
        """Wait until every server stands or has fallen; a deadline holds for each."""
        for listing in [*self._listings.values()]:
            await listing.ready()

    async def settle(self) -> None:
        """Wait for all servers, and store who stands and who fell."""
        await self.ready()
        await self._note()

    async def noted(self) -> tuple[Refusal, ...]:
        """Every refusal that is on disk by now."""
        async with self._noting:
            return tuple(self._noted)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The tools of the servers that stand by now."""
        return self._catalog.offers

    async def tools(self) -> tuple[Offer, ...]:
        """Every tool the session may call, once every server stands or has fallen."""
        await self.ready()
        return self.offers

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        meta: JsonObject | None = None,
    ) -> Answer:
        """Call `server.tool`. The answer is on disk before it is yours; a failure is an answer, too."""
        asked = ToolCall(call_id=new_call_id(), server="", tool=name, arguments=encoded(arguments), meta=meta)
        return await self.perform(asked, timeout=timeout, progress=progress)

    async def perform(
        self,
        asked: ToolCall,
        *,
        permit: Permit | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Do what was asked, if it may be done: `permit` gives None, or the answer that says no."""
        task = asyncio.create_task(self._perform(asked, permit, timeout, progress))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closing:
                raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.") from None
            task.cancel()
            await outlast(_end_of(task))
            raise

    async def _perform(
        self, asked: ToolCall, permit: Permit | None, timeout: float | None, progress: Progress | None
    ) -> Answer:
        self.scope.check_open()
        began = time.monotonic()
        try:
            offer = await self._find(asked.tool)
        except HoldfastError as error:
            answer = failed(error)
            await self._record.denied(asked, answer)
            return answer
        asked = replace(asked, server=offer.server.name, tool=offer.tool.name)
        answer = CANCELLED
        try:
            await self._record.called(asked, title=offer.tool.title or offer.name, kind=kind_of(offer))
            refused = await permit(asked, offer) if permit is not None else None
            if refused is None:
                await self._record.started(asked)  # or nothing would be known of it after a crash
            answer = refused or await call(
                self._means.links,
                self._scope_here(),
                offer,
                asked,
                timeout=self._means.terms.call_seconds if timeout is None else timeout,
                progress=progress,
            )
            if answer.state_lost:  # it was started anew, and may be another one by now
                self.tools_changed(offer.server.name)
        except HoldfastError as error:
            answer = replace(failed(error), outcome=Outcome.REFUSED)  # it was not made
            raise
        except asyncio.CancelledError:
            if not self._closing:
                raise
            answer = CLOSED
        finally:
            # Also when the caller is cancelled: the end of a call is stored whatever ended it.
            await outlast(self._record.ended(asked, answer, time.monotonic() - began))
        return answer

    async def resources(self, server: str) -> list[dict[str, Any]]:
        """The resources that a server has."""
        return await self._list_all(server, "resources/list", "resources")

    async def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        """One resource's content."""
        return await self._ask(server, "resources/read", {"uri": uri})

    async def prompts(self, server: str) -> list[dict[str, Any]]:
        """The prompts that a server has."""
        return await self._list_all(server, "prompts/list", "prompts")

    async def prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """One prompt, filled in."""
        return await self._ask(server, "prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def lower_trust(self) -> None:
        """Make the session sandboxed from here on: its links close, and what it may still use starts anew, confined."""
        async with self._lowering:
            if self.context.trust_level is Trust.SANDBOXED and not self._half_lowered:
                return
            self._half_lowered = True
            # First of all: from here on, nothing that was resolved before can be connected to.
            self.scope.become(replace(self.context, trust_level=Trust.SANDBOXED))
            self._record.become(self.context)
            await self._stop_listing()
            self._resolution = replace(self._resolution, servers=())
            self._start()
            await self._means.links.close_links(self.scope)
            await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
            self._half_lowered = False
            self._resolution = await self._means.resolve(self.context)
            self._noted = []  # it was resolved anew
            self._start()
            await self.settle()

    def tools_changed(self, server: str) -> None:
        """A server says that its tools are not what they were: list them again, and screen them as at first."""
        listing = self._listings.get(server)
        if listing is not None:
            listing.changed()

    async def close(self, reason: str = "closed") -> None:
        """End every link and store the end."""
        stopped = asyncio.create_task(self._stop_listing())
        await self._means.links.close_scope(self.scope)
        await stopped
        self._closing = True
        while calls := set(self._calls):  # on links that others share, or waiting for somebody
            for task in calls:
                task.cancel()
            await asyncio.wait(calls)
        last: list[tuple[Event, Also | None]] = []
        async with self._noting:
            standing, new = self._news()
            if new or standing != self._standing:
                last.append((standing, self._record.notes_refused(new)))
        if self._half_lowered:
            last.append((TrustLowered(trust_level=Trust.SANDBOXED), None))
        await self._record.close(*last, (SessionClosed(reason=reason), None))

    def _start(self) -> None:
        self._catalog = Catalog()
        self._listings = {
            spec.name: Listing(spec, self._look, self._looked) for spec in self._resolution.servers
        }

    async def _stop_listing(self) -> None:
        await asyncio.gather(*(listing.close() for listing in self._listings.values()))

    async def _look(self, spec: ServerSpec) -> Sifted:
        link, connection = await self._means.links.connected(self.scope, spec)
        with link.used(), self._in_time(spec.name, "tools"):
            async with asyncio.timeout(self._means.terms.list_seconds):
                tools = await connection.tools()
        return await self._means.screen(spec, tools)

    @contextmanager
    def _in_time(self, server: str, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            seconds = self._means.terms.list_seconds
            raise HoldfastError(
                codes.TIMEOUT, f"{server!r} did not list its {what} within {seconds:g} s."
            ) from None

    async def _looked(self) -> None:
        """One of the servers was looked at: it is offered, or it fell."""
        self._make_catalog()
        try:
            await self._note(final=False)
        except HoldfastError as error:
            # At the latest the end of the session notes it.
            log.warning("refusals not stored yet", extra={"reason": error.message})

    async def _note(self, *, final: bool = True) -> None:
        """Store who stands and who fell: whenever somebody has fallen, and finally in any case. None is noted twice."""
        await outlast(self._note_now(final=final))  # what is stored must be known to be

    async def _note_now(self, *, final: bool) -> None:
        async with self._noting:
            standing, new = self._news()
            if not new and (not final or standing == self._standing):
                return
            await self._record.resolved(standing, new)
            self._noted += new
            self._standing = standing

    def _news(self) -> tuple[ServersResolved, list[Refusal]]:
        """Who stands and who fell, and whose fall was not noted yet."""
        standing = ServersResolved(servers=self.up, refusals=self.refusals)
        return standing, _without(standing.refusals, self._noted)

    def _make_catalog(self) -> None:
        listings = self._listings.values()
        self._catalog = catalog(
            (listing.spec, listing.sifted.offered) for listing in listings if listing.sifted is not None
        )

    def _scope_here(self) -> Scope:
        """The run that this code belongs to, if it belongs to one of this session's."""
        scope = current_scope()
        return scope if scope is not None and scope.home is self.scope else self.scope

    async def _find(self, name: str) -> Offer:
        with suppress(HoldfastError):
            return self._catalog.find(name)
        for listing in [*self._listings.values()]:
            if may_be_of(listing.spec.name, name):
                await listing.ready()  # it may still be starting
        try:
            return self._catalog.find(name)
        except HoldfastError as error:
            if not self.starting:
                raise
            starting = ", ".join(self.starting)
            raise HoldfastError(error.code, f"{error.message} Still starting: {starting}.") from None

    async def _list_all(self, server: str, method: str, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: Json = None
        with self._in_time(server, key):
            async with asyncio.timeout(self._means.terms.list_seconds):
                for _ in range(_PAGES):
                    page = await self._ask(server, method, {} if cursor is None else {"cursor": cursor})
                    items = page.get(key)
                    found += (
                        [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
                    )
                    cursor = page.get("nextCursor")
                    if cursor is None:
                        return found
        raise HoldfastError(codes.BAD_ANSWER, f"{server!r} lists its {key} without end.")

    async def _ask(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject:
        link, connection = await self._means.links.connected(self._scope_here(), self.server(server))
        with link.used():
            raw = await connection.request(method, params, timeout=self._means.terms.list_seconds)
        answer: Json = msgspec.json.decode(raw)
        return answer if isinstance(answer, dict) else {}


async def _end_of(task: asyncio.Task[Answer]) -> None:
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # seen: who was cancelled does not hear of it


def _without(refusals: Sequence[Refusal], noted: Sequence[Refusal]) -> list[Refusal]:
    left = [*refusals]
    for refusal in noted:
        if refusal in left:
            left.remove(refusal)
    return left


def encoded(arguments: Mapping[str, Any] | None) -> bytes:
    """Arguments as the JSON text that is sent and hashed."""
    try:
        return msgspec.json.encode(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be written as JSON: {error}."
        ) from None
