"""The owner of one session: it opens its links, passes calls on, and closes what it opened."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.connect.call import Answer, call, failed
from holdfast.connect.catalog import Catalog, Offer, catalog
from holdfast.connect.hearing import Progress
from holdfast.connect.links import Links
from holdfast.connect.scope import Scope, current_scope
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import SessionClosed, SessionOpened, TrustLowered
from holdfast.model.ids import new_call_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Caution, Refusal, Resolution, Stage
from holdfast.model.server import ServerSpec
from holdfast.model.trust import Trust
from holdfast.resolve.pins import Held, Sifted
from holdfast.session.record import Record
from holdfast.wire.mcp.tools import Tool

_PAGES = 1000

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
        self._servers: dict[str, ServerSpec] = {}
        self._listings: dict[str, asyncio.Task[None]] = {}
        self._offered: dict[str, tuple[Tool, ...]] = {}
        self._held: dict[str, tuple[Held, ...]] = {}
        self._failed: dict[str, Refusal] = {}
        self._catalog = Catalog()

    @property
    def context(self) -> SessionContext:
        """Who this session is."""
        return self.scope.context

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        return (*self._resolution.refusals, *self._failed.values())

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What there is to know about servers that stand."""
        return self._resolution.cautions

    @property
    def held_back(self) -> Mapping[str, tuple[Held, ...]]:
        """The tools that wait for approval, by server."""
        return self._held

    @property
    def starting(self) -> tuple[str, ...]:
        """The servers that are not up yet."""
        return tuple(name for name, task in self._listings.items() if not task.done())

    def server(self, name: str) -> ServerSpec:
        """One of the session's servers."""
        spec = self._servers.get(name)
        if spec is None:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.")
        return spec

    async def open(self) -> None:
        """Start all of the session's servers at once; `ready` waits for them."""
        context = self.context
        await self._record.add(
            SessionOpened(cwd=context.cwd, roots=context.roots, trust_level=context.trust_level)
        )
        self._start()

    async def ready(self) -> None:
        """Wait until every server stands or has fallen; a deadline holds for each."""
        while pending := [task for task in self._listings.values() if not task.done()]:
            await asyncio.wait(pending)

    async def settle(self) -> None:
        """Wait for all servers, and store who stands and who fell."""
        await self.ready()
        await self._record.resolved(tuple(self._offered), self.refusals)

    async def tools(self) -> tuple[Offer, ...]:
        """Every tool the session may call."""
        await self.ready()
        return self._catalog.offers

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
        self.scope.check_open()
        began = time.monotonic()
        asked = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=_encoded(arguments), meta=meta
        )
        try:
            offer = await self._find(name)
        except HoldfastError as error:
            answer = failed(error)
            await self._record.denied(asked, answer)
            return answer
        asked = replace(asked, server=offer.server.name, tool=offer.tool.name)
        await self._record.called(asked)
        answer = await call(
            self._means.links,
            self._scope_here(),
            offer,
            asked,
            timeout=self._means.terms.call_seconds if timeout is None else timeout,
            progress=progress,
        )
        await self._record.ended(asked, answer, time.monotonic() - began)
        return answer

    async def resources(self, server: str) -> list[JsonObject]:
        """The resources that a server has."""
        return await self._list_all(server, "resources/list", "resources")

    async def read_resource(self, server: str, uri: str) -> JsonObject:
        """One resource's content."""
        return await self._ask(server, "resources/read", {"uri": uri})

    async def prompts(self, server: str) -> list[JsonObject]:
        """The prompts that a server has."""
        return await self._list_all(server, "prompts/list", "prompts")

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> JsonObject:
        """One prompt, filled in."""
        return await self._ask(server, "prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def lower_trust(self) -> None:
        """Make the session sandboxed from here on: its links close, and what it may still use starts anew, confined."""
        if self.context.trust_level is Trust.SANDBOXED:
            return
        self.scope.become(replace(self.context, trust_level=Trust.SANDBOXED))
        await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
        for task in self._listings.values():
            task.cancel()
        await self._means.links.close_links(self.scope)
        self._resolution = await self._means.resolve(self.context)
        self._start()
        await self.settle()

    def tools_changed(self, server: str) -> None:
        """A server says that its tools are not what they were: list them again, and screen them as at first."""
        spec = self._servers.get(server)
        if spec is not None and self._listings[server].done():
            self._listings[server] = asyncio.create_task(self._list(spec))

    async def close(self, reason: str = "closed") -> None:
        """End every link and store the end."""
        for task in self._listings.values():
            task.cancel()
        await self._means.links.close_scope(self.scope)
        if self._listings:
            await asyncio.wait(self._listings.values())
        await self._record.add(SessionClosed(reason=reason))

    def _start(self) -> None:
        self._servers = {spec.name: spec for spec in self._resolution.servers}
        self._offered, self._held, self._failed = {}, {}, {}
        self._catalog = Catalog()
        self._listings = {name: asyncio.create_task(self._list(spec)) for name, spec in self._servers.items()}

    async def _list(self, spec: ServerSpec) -> None:
        terms = self._means.terms
        try:
            link, connection = await self._means.links.connected(self.scope, spec)
            with link.used():
                tools = await connection.tools(timeout=terms.list_seconds)
            sifted = await self._means.screen(spec, tools)
        except HoldfastError as error:
            self._failed[spec.name] = Refusal(server=spec.name, stage=Stage.CONNECT, reason=error.message)
            return
        self._offered[spec.name] = sifted.offered
        self._held[spec.name] = sifted.held
        self._catalog = catalog((self._servers[name], offered) for name, offered in self._offered.items())

    def _scope_here(self) -> Scope:
        """The run that this code belongs to, if it belongs to one of this session's."""
        scope = current_scope()
        return scope if scope is not None and scope.home is self.scope else self.scope

    async def _find(self, name: str) -> Offer:
        try:
            return self._catalog.find(name)
        except HoldfastError:
            await self.ready()  # its server may still be starting
            return self._catalog.find(name)

    async def _list_all(self, server: str, method: str, key: str) -> list[JsonObject]:
        found: list[JsonObject] = []
        cursor: Json = None
        for _ in range(_PAGES):
            page = await self._ask(server, method, {} if cursor is None else {"cursor": cursor})
            items = page.get(key)
            found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
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


def _encoded(arguments: Mapping[str, Any] | None) -> bytes:
    try:
        return msgspec.json.encode(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be written as JSON: {error}."
        ) from None
