"""The servers of one session: which are available, which tools they offer, and why the others were refused."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Unpack

from holdfast.connect.call import build_meta
from holdfast.connect.catalog import (
    Catalog,
    CatalogTool,
    catalog_steps,
    could_belong_to,
    group_servers,
)
from holdfast.connect.connection import Connection, ForwardOptions
from holdfast.connect.link import Link
from holdfast.connect.log_files import logs_command
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ServersResolved, TrustLowered
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, Resolution, SessionWarning, Stage
from holdfast.model.server import InProcess, Lifetime, ServerSpec, Source, Stdio
from holdfast.model.similar_names import suggest_name
from holdfast.model.trust import Trust
from holdfast.resolve.screen_tools import (
    ScreenedTools,
    ToolWithoutHints,
    WithheldTool,
    approve_command,
)
from holdfast.session.record import Record
from holdfast.session.server_deps import ServerDeps
from holdfast.session.server_tools import ServerTools
from holdfast.session.stored_resolution import StoredResolution
from holdfast.store.pending_event import OnAppend
from holdfast.wire.loop_throttle import run_steps_in_slices
from holdfast.wire.mcp.server import read_meta
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import make_decoder

_decode_members = make_decoder(dict[str, Raw])
log = logging.getLogger(__name__)

MAX_TOOLS_PER_SESSION = 5000
"""How many tools all servers of a session may list together, not counting the built-in ones."""


class Servers:
    """The servers of one session, and their tools."""

    def __init__(self, scope: Scope, resolution: Resolution, record: Record, deps: ServerDeps) -> None:
        self._scope = scope
        self._resolution = resolution
        self._record = record
        self._deps = deps
        self._servers: dict[str, ServerTools] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        """By server: the group of servers that it belongs to, see `group_servers`."""
        self._catalogs: dict[tuple[str, ...], Catalog] = {}
        """The catalog of each group of servers. If one server's tools change, only the catalog of its group is built again."""
        self._catalog = Catalog()
        self._catalog_lock = asyncio.Lock()
        self._change_lock = asyncio.Lock()
        self._lowering_unfinished = False
        """Whether the trust was lowered, but that is not stored yet."""
        self._stored = StoredResolution(record, self._read_state)
        self.on_listed: list[Callable[[], None]] = []
        """Called when a server's tools were listed."""
        self.on_changed: list[Callable[[], None]] = []
        """Called when the session's servers have changed and the new ones have started."""

    @property
    def specs(self) -> tuple[ServerSpec, ...]:
        return tuple(server.spec for server in self._servers.values())

    @property
    def available(self) -> tuple[str, ...]:
        return tuple(name for name, server in self._servers.items() if server.screened is not None)

    @property
    def ended(self) -> tuple[str, ...]:
        """The available servers whose process or connection has ended."""
        links = self._deps.links
        return tuple(
            name for name in self.available if links.has_ended(self._scope, self._servers[name].spec)
        )

    @property
    def restart_errors(self) -> Mapping[str, str]:
        """See `ServerAccess.restart_errors`."""
        links = self._deps.links
        errors = ((name, links.restart_error(self._scope, self._servers[name].spec)) for name in self.ended)
        return {
            name: self._record.mask.mask_all(error.message) for name, error in errors if error is not None
        }

    @property
    def starting(self) -> tuple[str, ...]:
        return tuple(name for name, server in self._servers.items() if server.is_starting)

    @property
    def not_started(self) -> tuple[str, ...]:
        return tuple(name for name, server in self._servers.items() if server.is_not_started)

    @property
    def needing_login(self) -> tuple[str, ...]:
        return tuple(name for name, server in self._servers.items() if server.needs_login)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        failed = (server.refusal for server in self._servers.values())
        return (*self._resolution.refusals, *(refusal for refusal in failed if refusal is not None))

    @property
    def warnings(self) -> tuple[SessionWarning, ...]:
        about_tools = (
            SessionWarning(server=name, stage=Stage.CONNECT, text=text)
            for name, screened in self._screened()
            for text in screened.warnings
        )
        return (*self._resolution.warnings, *about_tools)

    @property
    def awaiting_approval(self) -> Mapping[str, tuple[WithheldTool, ...]]:
        """The tools that await approval, for each server that has any."""
        held = {name: screened.awaiting_approval for name, screened in self._screened()}
        return {name: tools for name, tools in held.items() if tools}

    @property
    def offered_without_hints(self) -> Mapping[str, tuple[ToolWithoutHints, ...]]:
        """The tools whose hints and titles are withheld, for each server that has any."""
        offered = {name: screened.offered_without_hints for name, screened in self._screened()}
        return {name: tools for name, tools in offered.items() if tools}

    @property
    def tools(self) -> tuple[CatalogTool, ...]:
        return self._catalog.tools

    @property
    def listed_names(self) -> Mapping[str, frozenset[str] | None]:
        """See `ServerAccess.listed_names`. Servers that the session may not use (the stage `select`) are left out."""
        listed: dict[str, frozenset[str] | None] = {
            refusal.server: None for refusal in self._resolution.refusals if refusal.stage is not Stage.SELECT
        }
        for name, server in self._servers.items():
            screened = server.screened
            listed[name] = (
                None
                if screened is None
                else frozenset(tool.name for tool in (*screened.offered, *screened.withheld))
            )
        return listed

    def spec(self, name: str) -> ServerSpec:
        server = self._servers.get(name)
        if server is not None:
            return server.spec
        if refused := [refusal for refusal in self.refusals if refusal.server == name]:
            reason = self._record.mask.mask_all(refused[0].reason)
            raise HoldfastError(codes.SERVER_REFUSED, f"{name!r} is not available in this session. {reason}")
        suggestion = suggest_name(name, self._servers)
        raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.{suggestion}")

    async def read_log(self, name: str) -> str:
        """What a server wrote to standard error. Raise if it has no log of its own for this session."""
        spec = self.spec(name)
        if not isinstance(spec.transport, Stdio):
            is_here = isinstance(spec.transport, InProcess)
            why = "runs in this process" if is_here else "has a URL"
            raise HoldfastError(
                codes.NOT_GRANTED,
                f"{name!r} {why}: Holdfast keeps logs only of servers that it starts.",
                hint="See the log of this process."
                if is_here
                else "Ask the operator of that server for its log.",
            )
        if spec.lifetime is Lifetime.HOST:
            raise HoldfastError(
                codes.NOT_GRANTED,
                f"{name!r} is shared by several sessions. Its log can be read with: {logs_command(name)}",
            )
        if not self._scope.keeps_logs:
            raise HoldfastError(
                codes.NOT_GRANTED, f"{name!r} has no log: this session is not kept. Open it with keep=True."
            )
        return await self._deps.read_log(self._scope.context.session_id, name)

    def start(self, resolved: ServersResolved | None) -> None:
        """Start the servers that are not lazy; `wait_ready` waits for them. `resolved` is the stored state, if there is one."""
        if resolved is not None:
            self._stored.set_stored(resolved)
        self._start_all()

    async def wait_ready(self) -> None:
        for server in [*self._servers.values()]:
            await server.wait_ready()

    async def wait_listed(self) -> None:
        """Like `wait_ready`, but start the lazy servers whose tools are not known yet."""
        await self.wait_ready()
        await self.start_unknown()

    async def start_unknown(self) -> None:
        """Start the lazy servers whose tools are not known yet, and wait for them."""
        unknown = [
            server for server in self._servers.values() if server.is_not_started and server.screened is None
        ]
        for server in unknown:
            server.start()
        for server in unknown:
            await server.wait_ready()

    async def wait_ready_and_store(self) -> None:
        await self.wait_ready()
        await self._stored.store()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        return await self._stored.refusals()

    def find_started(self, name: str, scope: Scope) -> CatalogTool | None:
        """The tool `server.tool`; None if there is none yet, or if its server must first be started or restarted. `scope` is the caller's."""
        tool = self._catalog.get(name)
        if (
            tool is None
            or self._deps.links.is_outdated(scope, tool.server)
            or self._servers[tool.server.name].is_not_started
        ):
            return None
        return tool

    async def find(self, name: str, scope: Scope) -> CatalogTool:
        """Find a tool that `find_started` has not found. Start its server if it is lazy, and wait until it has started."""
        links = self._deps.links
        for server in [*self._servers.values()]:
            if could_belong_to(server.spec.name, name):
                server.start()
                # If the server's script was changed after its start, the server may have other tools now.
                if links.is_outdated(scope, server.spec):
                    server.mark_changed()
                await server.wait_ready()
        scope.session_scope.check_open()  # the session may have been closed during the wait
        try:
            return self._catalog.find(name)
        except HoldfastError as error:
            if (withheld := self._find_withheld(name)) is not None:
                raise withheld from None
            if (refusal := self._find_refusal(name)) is not None:
                reason = self._record.mask.mask_all(refusal.reason)
                message = f"{refusal.server!r} is not available in this session. {reason}"
                raise HoldfastError(codes.SERVER_REFUSED, message) from None
            # Not a tool of one of the session's servers: perhaps of a built-in server that the session does not have.
            if name.partition(".")[0].partition("__")[0] not in self._servers and (
                advice := self._deps.describe_missing(name)
            ):
                raise HoldfastError(error.code, f"{error.message} {advice}") from None
            if not self.starting:
                raise
            starting = ", ".join(self.starting)
            raise HoldfastError(error.code, f"{error.message} Still starting: {starting}.") from None

    def _find_withheld(self, name: str) -> HoldfastError | None:
        """The error for a tool that awaits approval; None if no such tool has this name."""
        for server, tools in self.awaiting_approval.items():
            for tool in tools:
                is_named = name in (f"{server}.{tool.name}", f"{server}__{tool.name}")
                if is_named and self.spec(server).allows_tool(tool.name):
                    return HoldfastError(
                        codes.NOT_APPROVED,
                        f"{name} awaits your approval. {tool.reason} Nothing was called. "
                        f"To review and approve it, run: {approve_command(server)}",
                        hint=f"Run: {approve_command(server)}",
                    )
        return None

    def _find_refusal(self, name: str) -> Refusal | None:
        """The refusal of the server that a tool with this name would belong to."""
        matching = [
            refusal
            for refusal in self.refusals
            if could_belong_to(refusal.server, name) and refusal.server not in self.available
        ]
        return max(matching, key=lambda refusal: len(refusal.server)) if matching else None

    async def list_again(self, scope: Scope, server: str) -> None:
        """Start a server if it is not running, and list its tools again. A failure is ignored: the next call reports it."""
        server_tools = self._servers.get(server)
        if server_tools is None:
            return
        try:
            await self._deps.links.connect(scope, server_tools.spec)
        except HoldfastError:
            return
        server_tools.mark_changed()
        await server_tools.wait_ready()

    def refresh_tools(self, server: str) -> None:
        server_tools = self._servers.get(server)
        if server_tools is not None:
            server_tools.mark_changed()

    async def was_added_later(self, server: str) -> bool:
        """Whether this session does not have the server, but would get it if it were opened now."""
        if server in self._servers:
            return False
        resolution = await self._deps.resolve(self._scope.context)
        return any(spec.name == server for spec in resolution.servers)

    async def update(self, *, screen_again: bool) -> None:
        """See `ServerAccess.update_servers`."""
        async with self._change_lock:
            if self._lowering_unfinished:
                return  # `lower_trust` resolves the servers
            # Resolve again. Servers whose spec has not changed are kept.
            old, resolution = self._servers, await self._deps.resolve(self._scope.context)
            kept = {
                spec.name: old[spec.name]
                for spec in resolution.servers
                if spec.name in old and old[spec.name].spec == spec and _is_kept(old[spec.name])
            }
            is_same = (
                tuple(server.spec for server in old.values()) == resolution.servers
                and resolution.refusals == self._resolution.refusals
            )
            # Stop listing the tools of the servers that are not kept, and start the new servers.
            removed = [server for name, server in old.items() if name not in kept]
            for server in removed:
                server.cancel()
            for server in removed:
                await server.wait_cancelled()
            async with self._catalog_lock:
                self._resolution = resolution
                await self._start_servers(kept)
            # End the servers that the new resolution lacks.
            gone = {server.spec.name for server in removed} - {spec.name for spec in resolution.servers}
            await self._deps.links.close_links(self._scope, gone)
            for server in kept.values() if screen_again else ():
                server.mark_changed()
        if is_same:
            return
        await self.wait_ready_and_store()
        for callback in self.on_changed:
            callback()

    def begin_lowering(self) -> None:
        """Lower the session's trust at once. From now on, no server is connected with the old trust."""
        context = self._scope.context
        if context.trust_level is not Trust.SANDBOXED:
            self._lowering_unfinished = True
            self._scope.update_context(replace(context, trust_level=Trust.SANDBOXED))
            self._record.set_context(self._scope.context)

    async def lower_trust(self) -> None:
        """Close all links, then start the servers that a sandboxed session may use."""
        self.begin_lowering()
        async with self._change_lock:
            if not self._lowering_unfinished:
                return
            await self.stop_listing()
            self._resolution = replace(self._resolution, servers=())
            self._start_all()
            await self._deps.links.close_links(self._scope)
            await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
            self._lowering_unfinished = False
            self._resolution = await self._deps.resolve(self._scope.context)
            self._stored.forget_refusals()
            self._start_all()
            await self.wait_ready_and_store()

    def cancel_listing(self) -> None:
        """Cancel the tasks that list the servers' tools. `stop_listing` also waits for them."""
        for server in self._servers.values():
            server.cancel()

    async def stop_listing(self) -> None:
        self.cancel_listing()
        for server in self._servers.values():
            await server.wait_cancelled()

    async def unstored_events(self) -> list[tuple[Event, OnAppend | None]]:
        """What must still be stored about the servers when the session is closed."""
        events: list[tuple[Event, OnAppend | None]] = []
        if (unstored := await self._stored.unstored_event()) is not None:
            events.append(unstored)
        if self._lowering_unfinished:
            events.append((TrustLowered(trust_level=Trust.SANDBOXED), None))
        return events

    def scope_of_caller(self) -> Scope:
        """The scope of the agent run (`host.run()`) that the caller is part of, or else the session's own scope."""
        return self._scope.find_caller_scope()

    async def list_all(self, server: str, method: str, key: str) -> list[JsonObject]:
        """List everything that a server has of one kind, page by page. `key` is the member of a page that has the items."""
        scope, spec = self.scope_of_caller(), self.spec(server)
        link, connection = await self._deps.links.connect(scope, spec)
        quota_owner = scope.quota_owner if spec.lifetime is Lifetime.HOST else ""
        meta = build_meta(scope, spec, self._deps.links.aliases)
        with link.use(), self._translate_timeout(server, key):
            async with asyncio.timeout(self._deps.options.list_seconds):
                return await connection.list_all(method, key, meta=meta, quota_owner=quota_owner)

    async def connection(self, server: str) -> tuple[Link, Connection]:
        return await self._deps.links.connect(self.scope_of_caller(), self.spec(server))

    async def forward(
        self, server: str, method: str, params: Mapping[str, Any], **options: Unpack[ForwardOptions]
    ) -> Raw:
        link, connection = await self.connection(server)
        scope, spec = self.scope_of_caller(), self.spec(server)
        quota_owner = scope.quota_owner if spec.lifetime is Lifetime.HOST else ""
        options["meta"] = build_meta(scope, spec, self._deps.links.aliases, options.get("meta"))
        with link.use():
            return await connection.forward(method, params, quota_owner=quota_owner, **options)

    async def notify(self, server: str, method: str, params: Raw) -> None:
        """Send a notification of the session's client. Other methods are refused, because a server might run them."""
        if not method.startswith("notifications/"):
            raise HoldfastError(codes.BAD_ARGUMENT, f"{method[:80]!r} is not a notification.")
        client_meta = read_meta(params)
        _, connection = await self.connection(server)
        meta = build_meta(self.scope_of_caller(), self.spec(server), self._deps.links.aliases, client_meta)
        members: dict[str, Any] = {**_decode_members(params)}
        members.pop("_meta", None)
        await connection.notify(method, {**members, "_meta": meta} if meta else members)

    def is_current(self, tool: CatalogTool) -> bool:
        """Whether the tool is still offered with the same definition, by the same server."""
        current = self._catalog.get(tool.name)
        return current is tool or (
            current is not None and (current.definition, current.server) == (tool.definition, tool.server)
        )

    def _screened(self) -> Iterator[tuple[str, ScreenedTools]]:
        for name, server in self._servers.items():
            if server.screened is not None:
                yield name, server.screened

    def _start_all(self) -> None:
        self._groups = group_servers(spec.name for spec in self._resolution.servers)
        self._catalogs = {self._groups[spec.name]: Catalog() for spec in self._resolution.servers}
        self._catalog = Catalog()
        self._servers = {spec.name: self._start_server(spec) for spec in self._resolution.servers}

    async def _start_servers(self, kept: Mapping[str, ServerTools]) -> None:
        self._groups = group_servers(spec.name for spec in self._resolution.servers)
        self._servers = {
            spec.name: kept.get(spec.name) or self._start_server(spec) for spec in self._resolution.servers
        }
        self._catalogs = {group: await self._build(group) for group in dict.fromkeys(self._groups.values())}
        self._catalog = Catalog.merge(self._catalogs.values())

    def _start_server(self, spec: ServerSpec) -> ServerTools:
        return ServerTools(spec, self._list_tools, self._on_listed, self._deps.recall)

    async def _build(self, group: tuple[str, ...]) -> Catalog:
        listed = [
            (server.spec, server.screened.offered)
            for server in (self._servers[name] for name in group)
            if server.screened is not None
        ]
        return await run_steps_in_slices(catalog_steps(listed), self._scope.throttle)

    async def _list_tools(self, spec: ServerSpec, may_start: bool) -> ScreenedTools:  # noqa: FBT001
        """List and screen a server's tools. With `may_start`, start the server if it is not running; otherwise raise."""
        links = self._deps.links
        if not may_start and links.find_usable(self._scope, spec) is None:
            raise HoldfastError(
                codes.CONNECTION_CLOSED,
                f"{spec.name!r} is not running. Its tools will be listed again after a call has restarted it.",
            )
        link, connection = await links.connect(self._scope, spec, ignore_back_off=may_start)
        with link.use(), self._translate_timeout(spec.name, "tools"):
            async with asyncio.timeout(self._deps.options.list_seconds):
                tools = await connection.list_tools(meta=build_meta(self._scope, spec, links.aliases))
        self._set_tool_count(spec, len(tools))
        return await self._deps.screen(spec, tools, self._scope.throttle)

    def _set_tool_count(self, spec: ServerSpec, number: int) -> None:
        """Store how many tools the server has listed. Raise TOO_LARGE if the session then has too many."""
        if spec.source is Source.BUILTIN:
            return
        other_tools = sum(server.tool_count for name, server in self._servers.items() if name != spec.name)
        if other_tools + number > MAX_TOOLS_PER_SESSION:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"It has {number} tools, and the other servers of this session have {other_tools}. Together, the servers of a "
                f"session can have {MAX_TOOLS_PER_SESSION} tools. Open the session with fewer servers.",
            )
        self._servers[spec.name].tool_count = number

    @property
    def context(self) -> SessionContext:
        return self._scope.context

    @contextmanager
    def _translate_timeout(self, server: str, what: str) -> Iterator[None]:
        """Raise TIMEOUT if listing `what` takes too long."""
        try:
            yield
        except TimeoutError:
            seconds = self._deps.options.list_seconds
            raise HoldfastError(
                codes.TIMEOUT, f"{server!r} did not list its {what} within {seconds:g} s."
            ) from None

    async def _on_listed(self, spec: ServerSpec) -> None:
        async with self._catalog_lock:
            group = self._groups[spec.name]
            self._catalogs[group] = await self._build(group)
            self._catalog = Catalog.merge(self._catalogs.values())
        for callback in self.on_listed:
            callback()
        try:
            await self._stored.store(only_new_refusals=True)
        except HoldfastError as error:
            # The refusals are stored when a server next lists its tools, or when the session is closed.
            log.warning("could not store the refused servers yet", extra={"reason": error.message})

    def _read_state(self) -> ServersResolved:
        seconds = {name: server.start_seconds for name, server in self._servers.items()}
        return ServersResolved(
            servers=self.available,
            refusals=self.refusals,
            stage_seconds=dict(self._deps.stage_seconds),
            server_seconds={name: value for name, value in seconds.items() if value is not None},
        )


def _is_kept(server: ServerTools) -> bool:
    """Whether a server whose spec has not changed keeps its `ServerTools`.

    A refused server gets new `ServerTools`, which start it again. A lazy server that was not started gets new ones, which look
    up its last tools again.
    """
    return server.refusal is None and not server.is_not_started
