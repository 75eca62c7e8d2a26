"""The servers of one session: which are available, which tools they offer, and why the others were refused."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.catalog import Catalog, CatalogTool, build_catalog, could_belong_to
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope, current_scope
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, TrustLowered
from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Refusal, Resolution, SessionWarning, Stage
from holdfast.model.server import Lifetime, ServerSpec
from holdfast.model.trust import Trust
from holdfast.resolve.screen_tools import ScreenedTools, ToolWithoutHints, WithheldTool
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.server_tools import ServerTools
from holdfast.store.appender import OnAppend
from holdfast.wire.lines import LONG_BYTES
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.parse_threads import run_in_parse_thread

log = logging.getLogger(__name__)

Resolve = Callable[[SessionContext], Awaitable[Resolution]]
Screen = Callable[[ServerSpec, Sequence[Tool]], Awaitable[ScreenedTools]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeps:
    """What a session's servers need from the host."""

    links: LinkPool
    options: ConnectOptions
    arguments: ArgumentChecker
    resolve: Resolve
    """Resolves the session's servers again, when its trust was lowered."""
    screen: Screen
    """Screens the tools that a server lists."""


class Servers:
    """The servers of one session. Each is started by `start`, and its tools are kept up to date until `stop_listing`."""

    def __init__(self, scope: Scope, resolution: Resolution, record: Record, deps: ServerDeps) -> None:
        self._scope = scope
        self._resolution = resolution
        self._record = record
        self._deps = deps
        self._servers: dict[str, ServerTools] = {}
        self._catalog = Catalog()
        self._lowering = asyncio.Lock()
        self._lowering_unfinished = False
        """Whether the trust was lowered but could not be stored yet, as on a full disk."""
        self._stored_refusals: list[Refusal] = []
        self._stored_resolution: ServersResolved | None = None
        self._storing = asyncio.Lock()

    @property
    def available(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return tuple(name for name, server in self._servers.items() if server.screened is not None)

    @property
    def starting(self) -> tuple[str, ...]:
        """The servers that are still starting."""
        return tuple(name for name, server in self._servers.items() if server.is_starting)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        failed = (server.refusal for server in self._servers.values())
        return (*self._resolution.refusals, *(refusal for refusal in failed if refusal is not None))

    @property
    def warnings(self) -> tuple[SessionWarning, ...]:
        """Warnings about servers that were not refused: about their entries and about the definitions of their tools."""
        about_tools = (
            SessionWarning(server=name, stage=Stage.CONNECT, text=text)
            for name, screened in self._screened()
            for text in screened.warnings
        )
        return (*self._resolution.warnings, *about_tools)

    @property
    def awaiting_approval(self) -> Mapping[str, tuple[WithheldTool, ...]]:
        """The tools that await approval, by server."""
        return {name: screened.awaiting_approval for name, screened in self._screened()}

    @property
    def offered_without_hints(self) -> Mapping[str, tuple[ToolWithoutHints, ...]]:
        """The tools that are offered without their hints and titles, which no person approved, by server."""
        return {name: screened.offered_without_hints for name, screened in self._screened()}

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        """The tools of the servers that are available by now."""
        return self._catalog.tools

    def spec(self, name: str) -> ServerSpec:
        """The spec of one of the servers."""
        known = self._servers.get(name)
        if known is None:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.")
        return known.spec

    def start(self, resolved: ServersResolved | None) -> None:
        """Start all servers at once; `wait_ready` waits for them. `resolved` is their state if it is stored already."""
        if resolved is not None:
            self._stored_refusals = [*resolved.refusals]
            self._stored_resolution = resolved
        self._start_all()

    async def wait_ready(self) -> None:
        """Wait until every server is available or has failed; each has a timeout."""
        for server in [*self._servers.values()]:
            await server.wait_ready()

    async def wait_and_store(self) -> None:
        """Wait for all servers, then store which are available and which were refused."""
        await self.wait_ready()
        await self._store_servers()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        """The refusals that are on disk by now."""
        async with self._storing:
            return tuple(self._stored_refusals)

    async def find(self, name: str) -> CatalogTool:
        """Find the tool `server.tool`. If its server is still starting, wait for it."""
        if (tool := self._catalog.get(name)) is not None:
            return tool
        for server in [*self._servers.values()]:
            if could_belong_to(server.spec.name, name):
                await server.wait_ready()
        try:
            return self._catalog.find(name)
        except HoldfastError as error:
            if not self.starting:
                raise
            starting = ", ".join(self.starting)
            raise HoldfastError(error.code, f"{error.message} Still starting: {starting}.") from None

    def refresh_tools(self, server: str) -> None:
        """List and screen a server's tools again, as they may have changed."""
        known = self._servers.get(server)
        if known is not None:
            known.mark_changed()

    async def lower_trust(self) -> None:
        """Lower the session's trust: close all links, and start the servers that it may still use in the sandbox."""
        async with self._lowering:
            context = self._scope.context
            if context.trust_level is Trust.SANDBOXED and not self._lowering_unfinished:
                return
            self._lowering_unfinished = True
            # First, so that servers of the old resolution cannot be connected to any more.
            self._scope.update_context(replace(context, trust_level=Trust.SANDBOXED))
            self._record.set_context(self._scope.context)
            await self.stop_listing()
            self._resolution = replace(self._resolution, servers=())
            self._start_all()
            await self._deps.links.close_links(self._scope)
            await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
            self._lowering_unfinished = False
            self._resolution = await self._deps.resolve(self._scope.context)
            self._stored_refusals = []  # they belong to the old resolution
            self._start_all()
            await self.wait_and_store()

    def cancel_listing(self) -> None:
        """Begin to stop listing the tools of the servers."""
        for server in self._servers.values():
            server.cancel()

    async def stop_listing(self) -> None:
        """Stop listing the tools of the servers."""
        self.cancel_listing()
        for server in self._servers.values():
            await server.wait_cancelled()

    async def unstored_events(self) -> list[tuple[Event, OnAppend | None]]:
        """The events about the servers that are not stored yet, at the end of the session."""
        events: list[tuple[Event, OnAppend | None]] = []
        async with self._storing:
            resolved, new = self._unstored()
            if new or resolved != self._stored_resolution:
                events.append((resolved, self._record.audit_refusals(new)))
        if self._lowering_unfinished:
            events.append((TrustLowered(trust_level=Trust.SANDBOXED), None))
        return events

    def run_scope(self) -> Scope:
        """The scope of the agent run (`host.run()`) that this code is part of, or else the session's own scope."""
        scope = current_scope()
        return scope if scope is not None and scope.session_scope is self._scope else self._scope

    async def list_all(self, server: str, method: str, key: str) -> list[JsonObject]:
        """List everything that a server has of one kind, page by page. `key` is the field of the pages that has the items."""
        scope, spec = self.run_scope(), self.spec(server)
        link, connection = await self._deps.links.connect(scope, spec)
        quota_key = scope.context.session_id if spec.lifetime is Lifetime.HOST else ""
        with link.use(), self._list_timeout(server, key):
            async with asyncio.timeout(self._deps.options.list_seconds):
                return await connection.list_all(method, key, quota_key=quota_key)

    async def request(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Send a request to a server, and return its result."""
        scope, spec = self.run_scope(), self.spec(server)
        link, connection = await self._deps.links.connect(scope, spec)
        quota_key = scope.context.session_id if spec.lifetime is Lifetime.HOST else ""
        with link.use():
            raw = await connection.request(
                method, params, timeout=self._deps.options.list_seconds, quota_key=quota_key
            )
        result: Json = (
            await run_in_parse_thread(msgspec.json.decode, raw, throttle=scope.throttle)
            if len(raw) > LONG_BYTES
            else msgspec.json.decode(raw)
        )
        return result if isinstance(result, dict) else {}

    def _screened(self) -> Iterator[tuple[str, ScreenedTools]]:
        for name, server in self._servers.items():
            if server.screened is not None:
                yield name, server.screened

    def _start_all(self) -> None:
        self._catalog = Catalog()
        self._servers = {
            spec.name: ServerTools(spec, self._list_tools, self._on_listed)
            for spec in self._resolution.servers
        }

    async def _list_tools(self, spec: ServerSpec) -> ScreenedTools:
        links, is_opening = self._deps.links, self._servers[spec.name].is_starting
        if not is_opening and not links.is_connected(self._scope, spec):
            raise HoldfastError(
                codes.CONNECTION_CLOSED,
                f"{spec.name!r} has ended. Its tools are listed again when a call has started it.",
            )
        link, connection = await links.connect(self._scope, spec, at_once=is_opening)
        with link.use(), self._list_timeout(spec.name, "tools"):
            async with asyncio.timeout(self._deps.options.list_seconds):
                tools = await connection.list_tools()
        return await self._deps.screen(spec, tools)

    @contextmanager
    def _list_timeout(self, server: str, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            seconds = self._deps.options.list_seconds
            raise HoldfastError(
                codes.TIMEOUT, f"{server!r} did not list its {what} within {seconds:g} s."
            ) from None

    async def _on_listed(self) -> None:
        self._catalog = build_catalog(
            (self._servers[name].spec, screened.offered) for name, screened in self._screened()
        )
        try:
            await self._store_servers(final=False)
        except HoldfastError as error:
            # They are stored when the session is closed, at the latest.
            log.warning("refusals not stored yet", extra={"reason": error.message})

    async def _store_servers(self, *, final: bool = True) -> None:
        """Store the state of the servers if one was newly refused or, when `final`, if anything changed."""
        if not self._storing.locked() and self._is_stored(*self._unstored(), final=final):
            return
        # It runs to its end even if the caller is cancelled, because `_stored_refusals` must match the disk.
        await run_to_completion(self._store_servers_now(final=final))

    async def _store_servers_now(self, *, final: bool) -> None:
        async with self._storing:
            resolved, new = self._unstored()
            if self._is_stored(resolved, new, final=final):
                return
            await self._record.add_resolution(resolved, new)
            self._stored_refusals += new
            self._stored_resolution = resolved

    def _is_stored(self, resolved: ServersResolved, new: Sequence[Refusal], *, final: bool) -> bool:
        return not new and (not final or resolved == self._stored_resolution)

    def _unstored(self) -> tuple[ServersResolved, list[Refusal]]:
        """The state of the servers, and the refusals that are not stored yet."""
        resolved = ServersResolved(servers=self.available, refusals=self.refusals)
        return resolved, _new_refusals(resolved.refusals, self._stored_refusals)


def _new_refusals(refusals: Sequence[Refusal], stored: Sequence[Refusal]) -> list[Refusal]:
    known = Counter(stored)
    new: list[Refusal] = []
    for refusal in refusals:
        if known[refusal]:
            known[refusal] -= 1
        else:
            new.append(refusal)
    return new
