"""The servers of one session: which are available, which tools they offer, and why the others were refused."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.call import build_meta
from holdfast.connect.catalog import (
    Catalog,
    CatalogTool,
    catalog_steps,
    could_belong_to,
    group_servers,
)
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, TrustLowered
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, Resolution, SessionWarning, Stage
from holdfast.model.server import Lifetime, ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.resolve.screen_tools import ScreenedTools, ToolWithoutHints, WithheldTool
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.server_tools import ServerTools
from holdfast.store.appender import OnAppend
from holdfast.wire.loop_throttle import LoopThrottle, finish_in_slices
from holdfast.wire.mcp.tools import Tool

log = logging.getLogger(__name__)

Resolve = Callable[[SessionContext], Awaitable[Resolution]]
Screen = Callable[[ServerSpec, Sequence[Tool], LoopThrottle], Awaitable[ScreenedTools]]
MAX_TOOLS = 5000
"""How many tools all servers of a session may list together, not counting the built-in ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeps:
    """What a session's servers need from the host."""

    links: LinkPool
    options: ConnectOptions
    arguments: ArgumentChecker
    resolve: Resolve
    """Resolves the session's servers again, after its trust was lowered."""
    screen: Screen
    """Screens the tools that a server lists, within the session's share of the event loop's time."""
    mask_secret_files: Callable[[int], Awaitable[None]]
    """Masks the secrets in Holdfast's own files, if they have changed. A tool may have read them. Gets the size of its result."""


class Servers:
    """The servers of one session. Each is started by `start`, and its tools are kept up to date until `stop_listing`."""

    def __init__(self, scope: Scope, resolution: Resolution, record: Record, deps: ServerDeps) -> None:
        self._scope = scope
        self._resolution = resolution
        self._record = record
        self._deps = deps
        self._servers: dict[str, ServerTools] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        self._catalogs: dict[tuple[str, ...], Catalog] = {}
        """The catalog of each group of servers, so that a new list of one server's tools costs no more than its group."""
        self._catalog = Catalog()
        self._building = asyncio.Lock()
        self._lowering = asyncio.Lock()
        self._lowering_unfinished = False
        """Whether the trust was lowered, but that is not stored yet: it is about to be, or the disk is full, for example."""
        self._stored_refusals: list[Refusal] = []
        self._stored_resolution: ServersResolved | None = None
        self._storing = asyncio.Lock()

    @property
    def available(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return tuple(name for name, server in self._servers.items() if server.screened is not None)

    @property
    def starting(self) -> tuple[str, ...]:
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
        """By server: the tools whose hints and titles are withheld, because no person approved the tools' definitions."""
        return {name: screened.offered_without_hints for name, screened in self._screened()}

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        """The tools of the servers that are available now."""
        return self._catalog.tools

    def spec(self, name: str) -> ServerSpec:
        """The spec of one of the servers."""
        known = self._servers.get(name)
        if known is None:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.")
        return known.spec

    def start(self, resolved: ServersResolved | None) -> None:
        """Start all servers at once; `wait_ready` waits for them. `resolved` is their stored state, if there is one."""
        if resolved is not None:
            self._stored_refusals = [*resolved.refusals]
            self._stored_resolution = resolved
        self._start_all()

    async def wait_ready(self) -> None:
        """Wait until every server is available or has failed; each has a timeout."""
        for server in [*self._servers.values()]:
            await server.wait_ready()

    async def wait_ready_and_store(self) -> None:
        """Like `wait_ready`, then store which servers are available and which were refused."""
        await self.wait_ready()
        await self._store_servers()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        """The refusals that are stored. If some are being stored now, wait for that."""
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

    def begin_lowering(self) -> None:
        """Lower the session's trust at once: no server of the old resolution can be connected to any more."""
        context = self._scope.context
        if context.trust_level is not Trust.SANDBOXED:
            self._lowering_unfinished = True
            self._scope.update_context(replace(context, trust_level=Trust.SANDBOXED))
            self._record.set_context(self._scope.context)

    async def lower_trust(self) -> None:
        """Make the session sandboxed: close all links, then start the servers that a sandboxed session may use."""
        self.begin_lowering()
        async with self._lowering:
            if not self._lowering_unfinished:
                return
            await self.stop_listing()
            self._resolution = replace(self._resolution, servers=())
            self._start_all()
            await self._deps.links.close_links(self._scope)
            await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
            self._lowering_unfinished = False
            self._resolution = await self._deps.resolve(self._scope.context)
            self._stored_refusals = []  # they belong to the old resolution
            self._start_all()
            await self.wait_ready_and_store()

    def cancel_listing(self) -> None:
        """Tell the tasks that list the servers' tools to end; `stop_listing` also waits for them."""
        for server in self._servers.values():
            server.cancel()

    async def stop_listing(self) -> None:
        """End the tasks that list the servers' tools, and wait for them."""
        self.cancel_listing()
        for server in self._servers.values():
            await server.wait_cancelled()

    async def unstored_events(self) -> list[tuple[Event, OnAppend | None]]:
        """The events about the servers that must still be stored when the session is closed."""
        events: list[tuple[Event, OnAppend | None]] = []
        async with self._storing:
            resolved, new = self._unstored()
            if new or resolved != self._stored_resolution:
                events.append((resolved, self._record.audit_refusals_callback(new)))
        if self._lowering_unfinished:
            events.append((TrustLowered(trust_level=Trust.SANDBOXED), None))
        return events

    def scope_of_caller(self) -> Scope:
        """The scope of the agent run (`host.run()`) that the caller is part of, or else the session's own scope."""
        return self._scope.of_caller()

    async def list_all(self, server: str, method: str, key: str) -> list[JsonObject]:
        """List everything that a server has of one kind, page by page. `key` is the field of a page that contains the items."""
        scope, spec = self.scope_of_caller(), self.spec(server)
        link, connection = await self._deps.links.connect(scope, spec)
        quota_key = scope.context.session_id if spec.lifetime is Lifetime.HOST else ""
        meta = build_meta(scope, spec, self._deps.links.aliases)
        with link.use(), self._translate_timeout(server, key):
            async with asyncio.timeout(self._deps.options.list_seconds):
                return await connection.list_all(method, key, meta=meta, quota_key=quota_key)

    def is_current(self, tool: CatalogTool) -> bool:
        """Whether the tool is still offered with the same definition, by the same server."""
        now = self._catalog.get(tool.name)
        return now is tool or (
            now is not None and (now.definition, now.server) == (tool.definition, tool.server)
        )

    def _screened(self) -> Iterator[tuple[str, ScreenedTools]]:
        for name, server in self._servers.items():
            if server.screened is not None:
                yield name, server.screened

    def _start_all(self) -> None:
        self._groups = group_servers(spec.name for spec in self._resolution.servers)
        self._catalogs = {self._groups[spec.name]: Catalog() for spec in self._resolution.servers}
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
                f"{spec.name!r} is not running. Its tools will be listed again after a call has restarted it.",
            )
        link, connection = await links.connect(self._scope, spec, at_once=is_opening)
        with link.use(), self._translate_timeout(spec.name, "tools"):
            async with asyncio.timeout(self._deps.options.list_seconds):
                tools = await connection.list_tools(meta=build_meta(self._scope, spec, links.aliases))
        self._check_number(spec, len(tools))
        return await self._deps.screen(spec, tools, self._scope.throttle)

    def _check_number(self, spec: ServerSpec, number: int) -> None:
        """Raise if this server has more tools than the other servers of the session have left for it."""
        if spec.source is Source.BUILTIN:
            return
        others = sum(server.number for name, server in self._servers.items() if name != spec.name)
        if others + number > MAX_TOOLS:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"It has {number} tools, and the other servers of this session have {others}. Together, the servers of a "
                f"session can have {MAX_TOOLS} tools. Open the session with fewer servers.",
            )
        self._servers[spec.name].number = number

    @contextmanager
    def _translate_timeout(self, server: str, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            seconds = self._deps.options.list_seconds
            raise HoldfastError(
                codes.TIMEOUT, f"{server!r} did not list its {what} within {seconds:g} s."
            ) from None

    async def _on_listed(self, spec: ServerSpec) -> None:
        group = self._groups[spec.name]
        async with self._building:
            listed = [
                (server.spec, server.screened.offered)
                for server in (self._servers[name] for name in group)
                if server.screened is not None
            ]
            self._catalogs[group] = await finish_in_slices(catalog_steps(listed), self._scope.throttle)
            self._catalog = Catalog.merge(self._catalogs.values())
        try:
            await self._store_servers(final=False)
        except HoldfastError as error:
            # At the latest, the refusals are stored when the session is closed.
            log.warning("could not store the refused servers yet", extra={"reason": error.message})

    async def _store_servers(self, *, final: bool = True) -> None:
        """Store the state of the servers if one was newly refused or, when `final`, if anything changed."""
        if not self._storing.locked() and self._is_stored(*self._unstored(), final=final):
            return
        # Finish even if the caller is cancelled, because `_stored_refusals` must match what is stored.
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
