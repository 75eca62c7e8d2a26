"""Opens a connection to a server over its transport."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from holdfast.connect.connection import Connection, ConnectOptions, reads_context
from holdfast.connect.http.remote_connector import RemoteConnector
from holdfast.connect.in_process import MakeService, open_app_service, open_in_process
from holdfast.connect.scope import Scope
from holdfast.connect.server_log import ServerLogs
from holdfast.connect.server_requests import FindReadOnly, ServerRequests, every_root
from holdfast.connect.start_folder import start_folder
from holdfast.connect.stdio import open_stdio
from holdfast.connect.warm_pool import WarmPool, WarmServer, can_start_in_advance
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import context_meta
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.process import KeptFor, ProcessSpec
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Source, Sse, Stdio
from holdfast.model.visible_text import to_line
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper

log = logging.getLogger(__name__)

_SHORT_ID = 13  # "sess_" and the first eight characters


def _ignore(spec: ServerSpec, scope: Scope | None) -> None:
    pass


CheckProgram: TypeAlias = Callable[[ServerSpec, str], Awaitable[frozenset[tuple[str, int, int]]]]
"""Raises if a project's server is no longer approved, or if its program has changed since the approval.

The second argument is the session's folder. Returns the path, inode and change time of each file of the program.
"""


async def _skip_check(spec: ServerSpec, session_folder: str) -> frozenset[tuple[str, int, int]]:
    return frozenset()


PrepareConfined: TypeAlias = Callable[[ServerSpec], Awaitable[ServerSpec]]
"""Returns the spec with which a confined server is started."""


async def _keep_spec(spec: ServerSpec) -> ServerSpec:
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Opens the connections of one host."""

    keeper: Keeper
    warm_pool: WarmPool
    remote: RemoteConnector
    options: ConnectOptions
    empty_folders: Path
    """Where to create the empty folders that some servers are started in."""
    aliases: ContextAliases = NO_ALIASES
    on_tools_changed: Callable[[ServerSpec, Scope | None], None] = _ignore
    check_program: CheckProgram = _skip_check
    """Called before and after a program is started, and before Holdfast connects to a project's remote server."""
    prepare_confined: PrepareConfined = _keep_spec
    """Called before a confined server is started. Returns the spec to start, which may run a fetched package instead of `npx`."""
    find_read_only: FindReadOnly = every_root
    """Finds the paths that a sandboxed session may not change now."""
    services: Mapping[str, MakeService] = field(default_factory=dict[str, MakeService])
    """Makes the built-in servers in the host's process, by service name."""
    confined_folders: ConfinedFolders = field(default_factory=ConfinedFolders)
    """The folders that running confined servers can change. Each confined server is added while it runs."""
    server_logs: ServerLogs | None = None

    def open(self, spec: ServerSpec, scope: Scope | None) -> AbstractAsyncContextManager[Connection]:
        """Open a connection. `scope` is None for a server that sessions share: the connection has no session context."""
        door = scope.session_scope.door if scope is not None else None
        requests = ServerRequests(
            spec, scope, door, lambda: self.on_tools_changed(spec, scope), self.find_read_only
        )
        if log.isEnabledFor(logging.DEBUG):
            extra = {"server": spec.name, "context": _describe_context(spec, scope)}
            log.debug("context injected", extra=extra)
        match spec.transport:
            case Stdio():
                if self.server_logs is not None and (scope is None or scope.session_scope.keeps_logs):
                    requests.server_log = self.server_logs.open(spec, scope)
                    requests.server_log.note(_describe_context(spec, scope))
                meta = _connection_meta(spec, scope, self.aliases)
                # With aliases, the server might read the context from its environment alone. The environment of a
                # process that was started in advance has none, so no such process is used.
                if scope is not None and can_start_in_advance(spec) and not self.aliases.variables:
                    return self._open_warm(spec, scope, requests, meta)
                return self._open_stdio(spec, scope, requests, meta)
            case Http() | Sse():
                meta = _connection_meta(spec, scope, self.aliases)
                remote = self.remote.open(
                    spec, scope, server_requests=requests, meta=meta, options=self.options
                )
                # Only a project's server needs the check, and each wrapper stays in memory as long as the link.
                return self._open_approved(spec, remote) if spec.source is Source.PROJECT else remote
            case InProcess(service=service):
                assert scope is not None, "a server in this process needs a session"
                open_service = scope.session_scope.services.get(service)
                if open_service is not None:
                    return open_app_service(
                        spec, open_service(scope.context), server_requests=requests, options=self.options
                    )
                instance = self.services[service](scope.context, door)
                return open_in_process(spec, instance, server_requests=requests, options=self.options)

    @asynccontextmanager
    async def _open_approved(
        self, spec: ServerSpec, remote: AbstractAsyncContextManager[Connection]
    ) -> AsyncIterator[Connection]:
        """Connect to a project's remote server if it is still approved."""
        await self.check_program(spec, "")
        async with remote as connection:
            yield connection

    @asynccontextmanager
    async def _open_warm(
        self, spec: ServerSpec, scope: Scope, requests: ServerRequests, meta: JsonObject
    ) -> AsyncIterator[Connection]:
        """Use a process that was started in advance. If there is none, or it has failed, start one now."""
        folder = scope.context.cwd
        warm_server = self.warm_pool.take(spec, folder)
        async with AsyncExitStack() as stack:
            connection: Connection | None = None
            if warm_server is not None:
                if requests.server_log is not None:
                    requests.server_log.note(
                        "it was started in advance: the context is in _meta of each request"
                    )
                try:
                    connection = await stack.enter_async_context(
                        self._open_stdio(spec, scope, requests, meta, warm_server)
                    )
                except HoldfastError as error:
                    extra = {"server": spec.name, "reason": error.message}
                    log.warning(
                        "%s, which was started in advance, failed; another process is started: %s",
                        spec.name,
                        to_line(error.message),
                        extra=extra,
                    )
                    if self.server_logs is not None and requests.server_log is not None:
                        requests.server_log = self.server_logs.open(spec, scope)
                finally:
                    self.warm_pool.end_unused(warm_server)
            if connection is None:
                connection = await stack.enter_async_context(self._open_stdio(spec, scope, requests, meta))
            if reads_context(connection.server_info):
                self.warm_pool.fill(spec, folder)
            else:
                extra = {"server": spec.name}
                log.warning(
                    "%s cannot be started in advance: it does not read the session context",
                    spec.name,
                    extra=extra,
                )
            yield connection

    @asynccontextmanager
    async def _open_stdio(
        self,
        spec: ServerSpec,
        scope: Scope | None,
        requests: ServerRequests,
        meta: JsonObject,
        warm_server: WarmServer | None = None,
    ) -> AsyncIterator[Connection]:
        """Start a local server and connect to it. With `warm_server`, use that process, which was started in advance.

        The server's program is checked before the start and after it, so that no change in between is missed.
        """
        # One function instead of several: an idle link keeps each of its context managers in memory.
        assert isinstance(spec.transport, Stdio)
        server_log = requests.server_log
        try:
            session_folder = scope.context.cwd if scope is not None else ""
            before = await self.check_program(spec, session_folder)
            is_confined = spec.confinement is not None
            spec_to_start = await self.prepare_confined(spec) if is_confined else spec
            open_folder = (
                start_folder(
                    spec.transport,
                    session_folder=session_folder,
                    is_confined=is_confined,
                    empty_folders=self.empty_folders,
                )
                if warm_server is None
                else warm_server.hold_folder()
            )
            with (
                self.confined_folders.add_while_running(spec_to_start.confinement)
                if is_confined
                else nullcontext()
            ):
                async with (
                    open_folder as folder,
                    open_stdio(
                        spec_to_start,
                        folder,
                        server_requests=requests,
                        meta=meta,
                        spawn=partial(self._spawn, _kept_for(spec, scope))
                        if warm_server is None
                        else warm_server.adopt,
                        options=self.options,
                    ) as connection,
                ):
                    if not before <= await self.check_program(spec, session_folder):
                        raise HoldfastError(
                            codes.NOT_APPROVED,
                            f"The program of {spec.name!r} was replaced while it was being started.",
                        )
                    yield connection
        except HoldfastError as error:
            if server_log is not None:
                first, *_ = error.message.split("\n")
                server_log.note(f"the connection failed: {first}")
            raise
        finally:
            if server_log is not None:
                server_log.note("the connection is closed")
                await server_log.finish()

    async def _spawn(self, kept_for: KeptFor | None, process: ProcessSpec) -> Child:
        return await self.keeper.spawn(process if kept_for is None else replace(process, kept_for=kept_for))


def _connection_meta(spec: ServerSpec, scope: Scope | None, aliases: ContextAliases) -> JsonObject:
    if scope is None:
        return {}
    context = spec.context_for_server(scope.context)
    folder = context.workspace_path if isinstance(spec.transport, Stdio) else ""
    return {**aliases.meta(context, folder), **context_meta(context)}


def _kept_for(spec: ServerSpec, scope: Scope | None) -> KeptFor | None:
    """The stored session for which a server's container may be kept when the session is closed; None if it is not kept."""
    if spec.confinement is None or spec.lifetime is not Lifetime.SESSION:
        return None
    if scope is None or not scope.session_scope.is_stored:
        return None
    return KeptFor(session_id=scope.context.session_id, server=spec.name)


def _describe_context(spec: ServerSpec, scope: Scope | None) -> str:
    """Which context a server gets, and how."""
    match spec.transport:
        case Stdio():
            carrier = "the environment and _meta"
        case Http() | Sse():
            carrier = "a token in a header, and _meta"
        case InProcess():
            carrier = "memory"
    if scope is None or spec.lifetime is Lifetime.HOST:
        return "context of the calling session, in _meta of each request: sessions share this server"
    context = spec.context_for_server(scope.context)
    session = f"{context.session_id[:_SHORT_ID]}…"
    return f"context in {carrier}: session={session}, workspace={context.workspace_id}, trust={context.trust_level}"
