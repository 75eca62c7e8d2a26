"""One session: it starts its servers, makes its calls, and closes what it opened."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.connect.call import ToolResult, call, failed_result
from holdfast.connect.catalog import Catalog, CatalogTool, build_catalog, could_belong_to
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.notifications import OnProgress
from holdfast.connect.scope import Scope, current_scope
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Outcome, ServersResolved, SessionClosed, SessionOpened, TrustLowered
from holdfast.model.ids import new_call_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Refusal, Resolution, ServerWarning, Stage
from holdfast.model.server import Lifetime, ServerSpec
from holdfast.model.trust import Trust
from holdfast.resolve.screen_tools import ScreenedTools, UnconfirmedTool, WithheldTool
from holdfast.session.permission import tool_kind, tool_label
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.server_tools import ServerTools
from holdfast.store.appender import OnAppend
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.strict_json import has_more_values

log = logging.getLogger(__name__)

_MAX_PAGES = 1000

CANCELLED = replace(
    failed_result(HoldfastError(codes.CANCELLED, "The call was cancelled.")), outcome=Outcome.CANCELLED
)

CLOSED = replace(
    failed_result(HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")), outcome=Outcome.CANCELLED
)

Permit = Callable[[ToolCall, CatalogTool], Awaitable[ToolResult | None]]
Resolve = Callable[[SessionContext], Awaitable[Resolution]]
Screen = Callable[[ServerSpec, Sequence[Tool]], Awaitable[ScreenedTools]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDeps:
    """What a session needs from its host."""

    links: LinkPool
    options: ConnectOptions
    resolve: Resolve
    screen: Screen


class Session:
    """One session. Any task may make calls; the task that opened the session closes it."""

    def __init__(self, scope: Scope, resolution: Resolution, record: Record, deps: SessionDeps) -> None:
        self.scope = scope
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
        self._calls: set[asyncio.Task[ToolResult]] = set()
        self._closing = False

    @property
    def context(self) -> SessionContext:
        """The session's id, trust, workspace and folders."""
        return self.scope.context

    @property
    def record(self) -> Record:
        """Where the session's events are written."""
        return self._record

    @property
    def available(self) -> tuple[str, ...]:
        """The servers whose tools can be called."""
        return tuple(name for name, server in self._servers.items() if server.screened is not None)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every server that the session did not get, and why."""
        failed = (server.refusal for server in self._servers.values())
        return (*self._resolution.refusals, *(refusal for refusal in failed if refusal is not None))

    @property
    def warnings(self) -> tuple[ServerWarning, ...]:
        """Warnings about servers that were not refused: about their entries and about the definitions of their tools."""
        about_tools = (
            ServerWarning(server=name, stage=Stage.CONNECT, text=text)
            for name, server in self._servers.items()
            if server.screened is not None
            for text in server.screened.warnings
        )
        return (*self._resolution.warnings, *about_tools)

    @property
    def awaiting_approval(self) -> Mapping[str, tuple[WithheldTool, ...]]:
        """The tools that await approval, by server."""
        return {
            name: server.screened.awaiting_approval
            for name, server in self._servers.items()
            if server.screened is not None
        }

    @property
    def unconfirmed(self) -> Mapping[str, tuple[UnconfirmedTool, ...]]:
        """The tools that are offered without their hints and titles, which no person approved, by server."""
        return {
            name: server.screened.unconfirmed
            for name, server in self._servers.items()
            if server.screened is not None
        }

    @property
    def starting(self) -> tuple[str, ...]:
        """The servers that are still starting."""
        return tuple(name for name, server in self._servers.items() if server.is_starting)

    def server(self, name: str) -> ServerSpec:
        """The spec of one of the session's servers."""
        known = self._servers.get(name)
        if known is None:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"This session has no server {name[:80]!r}.")
        return known.spec

    async def open(self) -> None:
        """Start all of the session's servers at once; `wait_ready` waits for them."""
        context = self.context
        await self._record.add(
            SessionOpened(cwd=context.cwd, roots=context.roots, trust_level=context.trust_level)
        )
        self._start_servers()
        await self._store_servers(final=False)

    async def wait_ready(self) -> None:
        """Wait until every server is available or has failed; each has a timeout."""
        for server in [*self._servers.values()]:
            await server.wait_ready()

    async def wait_for_servers(self) -> None:
        """Wait for all servers, then store which are available and which were refused."""
        await self.wait_ready()
        await self._store_servers()

    async def stored_refusals(self) -> tuple[Refusal, ...]:
        """The refusals that are on disk by now."""
        async with self._storing:
            return tuple(self._stored_refusals)

    @property
    def available_tools(self) -> tuple[CatalogTool, ...]:
        """The tools of the servers that are available by now."""
        return self._catalog.tools

    async def tools(self) -> tuple[CatalogTool, ...]:
        """Every tool the session may call, once every server is available or has failed."""
        await self.wait_ready()
        return self.available_tools

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
    ) -> ToolResult:
        """Call `server.tool`. The result is stored before it is returned; a failure is a result, too."""
        tool_call = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=encode_arguments(arguments), meta=meta
        )
        return await self.perform(tool_call, timeout=timeout, on_progress=on_progress)

    async def perform(
        self,
        tool_call: ToolCall,
        *,
        permit: Permit | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Make a tool call. `permit` returns None to allow it, or the result to return instead."""
        task = asyncio.create_task(self._perform(tool_call, permit, timeout, on_progress))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closing:
                raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.") from None
            task.cancel()
            await run_to_completion(wait_done(task))
            raise

    async def _perform(
        self, tool_call: ToolCall, permit: Permit | None, timeout: float | None, progress: OnProgress | None
    ) -> ToolResult:
        self.scope.check_open()
        began = time.monotonic()
        try:
            tool = await self._find(tool_call.tool)
            self._check_arguments(tool_call)
        except HoldfastError as error:
            result = failed_result(error)
            await self._record.add_unknown_tool(tool_call, result)
            return result
        tool_call = replace(tool_call, server=tool.server.name, tool=tool.definition.name)
        result = CANCELLED
        try:
            await self._record.add_call(tool_call, title=tool_label(tool), kind=tool_kind(tool))
            refused = await permit(tool_call, tool) if permit is not None else None
            if refused is None:
                await self._record.add_start(tool_call)  # otherwise a crash would leave no trace of the call
            result = refused or await call(
                self._deps.links,
                self._run_scope(),
                tool,
                tool_call,
                timeout=self._deps.options.call_seconds if timeout is None else timeout,
                on_progress=progress,
            )
            if result.state_lost:  # the server was restarted, and may be another version now
                self.refresh_tools(tool.server.name)
        except HoldfastError as error:
            result = replace(failed_result(error), outcome=Outcome.REFUSED)  # the call was not made
            raise
        except asyncio.CancelledError:
            if not self._closing:
                raise
            result = CLOSED
        finally:
            # The end of a call is stored even if the caller is cancelled.
            await run_to_completion(self._record.add_end(tool_call, result, time.monotonic() - began))
        return result

    def _check_arguments(self, tool_call: ToolCall) -> None:
        """Refuse arguments with so many values that storing them would delay other sessions."""
        values = self._deps.options.limits.values
        if has_more_values(tool_call.arguments, values):
            raise HoldfastError(
                codes.TOO_LARGE, f"The arguments have more than {values} values. Nothing was called."
            )

    async def list_resources(self, server: str) -> list[dict[str, Any]]:
        """List a server's resources."""
        return await self._list_all(server, "resources/list", "resources")

    async def read_resource(self, server: str, uri: str) -> dict[str, Any]:
        """Read one resource."""
        return await self._request(server, "resources/read", {"uri": uri})

    async def list_prompts(self, server: str) -> list[dict[str, Any]]:
        """List a server's prompts."""
        return await self._list_all(server, "prompts/list", "prompts")

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Get one prompt, filled in with the arguments."""
        return await self._request(server, "prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def lower_trust(self) -> None:
        """Make the session sandboxed for good: its links are closed, and the servers it may still use restart in the sandbox."""
        async with self._lowering:
            if self.context.trust_level is Trust.SANDBOXED and not self._lowering_unfinished:
                return
            self._lowering_unfinished = True
            # First, so that servers of the old resolution cannot be connected to any more.
            self.scope.update_context(replace(self.context, trust_level=Trust.SANDBOXED))
            self._record.set_context(self.context)
            await self._stop_listing()
            self._resolution = replace(self._resolution, servers=())
            self._start_servers()
            await self._deps.links.close_links(self.scope)
            await self._record.add(TrustLowered(trust_level=Trust.SANDBOXED))
            self._lowering_unfinished = False
            self._resolution = await self._deps.resolve(self.context)
            self._stored_refusals = []  # they belong to the old resolution
            self._start_servers()
            await self.wait_for_servers()

    def refresh_tools(self, server: str) -> None:
        """List and screen a server's tools again, as they may have changed."""
        known = self._servers.get(server)
        if known is not None:
            known.mark_changed()

    async def close(self, reason: str = "closed") -> None:
        """Close every link, cancel the running calls, and store the end of the session."""
        stopped = asyncio.create_task(self._stop_listing())
        await self._deps.links.close_scope(self.scope)
        await stopped
        self._closing = True
        # Calls on shared links, and calls that wait for the user, are still running.
        while calls := set(self._calls):
            for task in calls:
                task.cancel()
            await asyncio.wait(calls)
        last: list[tuple[Event, OnAppend | None]] = []
        async with self._storing:
            resolved, new = self._unstored()
            if new or resolved != self._stored_resolution:
                last.append((resolved, self._record.audit_refusals(new)))
        if self._lowering_unfinished:
            last.append((TrustLowered(trust_level=Trust.SANDBOXED), None))
        await self._record.close(*last, (SessionClosed(reason=reason), None))

    def _start_servers(self) -> None:
        self._catalog = Catalog()
        self._servers = {
            spec.name: ServerTools(spec, self._list_tools, self._on_listed)
            for spec in self._resolution.servers
        }

    async def _stop_listing(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _list_tools(self, spec: ServerSpec) -> ScreenedTools:
        link, connection = await self._deps.links.connect(self.scope, spec)
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
        self._update_catalog()
        try:
            await self._store_servers(final=False)
        except HoldfastError as error:
            # They are stored when the session is closed, at the latest.
            log.warning("refusals not stored yet", extra={"reason": error.message})

    async def _store_servers(self, *, final: bool = True) -> None:
        """Store the state of the servers if one was newly refused or, when `final`, if anything changed."""
        # To the end, even if the caller is cancelled: `_stored_refusals` must match the disk.
        await run_to_completion(self._store_servers_now(final=final))

    async def _store_servers_now(self, *, final: bool) -> None:
        async with self._storing:
            resolved, new = self._unstored()
            if not new and (not final or resolved == self._stored_resolution):
                return
            await self._record.add_resolution(resolved, new)
            self._stored_refusals += new
            self._stored_resolution = resolved

    def _unstored(self) -> tuple[ServersResolved, list[Refusal]]:
        """The state of the servers, and the refusals that are not stored yet."""
        resolved = ServersResolved(servers=self.available, refusals=self.refusals)
        return resolved, _new_refusals(resolved.refusals, self._stored_refusals)

    def _update_catalog(self) -> None:
        self._catalog = build_catalog(
            (server.spec, server.screened.offered)
            for server in self._servers.values()
            if server.screened is not None
        )

    def _run_scope(self) -> Scope:
        """The scope of the agent run (`host.run()`) that this code is part of, or else the session's own scope."""
        scope = current_scope()
        return scope if scope is not None and scope.session_scope is self.scope else self.scope

    async def _find(self, name: str) -> CatalogTool:
        with suppress(HoldfastError):
            return self._catalog.find(name)
        for server in [*self._servers.values()]:
            if could_belong_to(server.spec.name, name):
                await server.wait_ready()  # the server may still be starting
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
        with self._list_timeout(server, key):
            async with asyncio.timeout(self._deps.options.list_seconds):
                for _ in range(_MAX_PAGES):
                    page = await self._request(server, method, {} if cursor is None else {"cursor": cursor})
                    items = page.get(key)
                    found += (
                        [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
                    )
                    cursor = page.get("nextCursor")
                    if cursor is None:
                        return found
        raise HoldfastError(codes.BAD_ANSWER, f"{server!r} returned more than {_MAX_PAGES} pages of {key}.")

    async def _request(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject:
        scope, spec = self._run_scope(), self.server(server)
        link, connection = await self._deps.links.connect(scope, spec)
        owner = scope.context.session_id if spec.lifetime is Lifetime.HOST else ""
        with link.use():
            raw = await connection.request(
                method, params, timeout=self._deps.options.list_seconds, owner=owner
            )
        result: Json = msgspec.json.decode(raw)
        return result if isinstance(result, dict) else {}


def _new_refusals(refusals: Sequence[Refusal], stored: Sequence[Refusal]) -> list[Refusal]:
    known = Counter(stored)
    new: list[Refusal] = []
    for refusal in refusals:
        if known[refusal]:
            known[refusal] -= 1
        else:
            new.append(refusal)
    return new


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Encode arguments as the JSON text that is sent and hashed."""
    try:
        return msgspec.json.encode(dict(arguments or {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be written as JSON: {error}."
        ) from None
