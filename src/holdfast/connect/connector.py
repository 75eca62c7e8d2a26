"""Open a connection to a server over its transport, with the session's context in `_meta`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.http.remote import RemoteConnector
from holdfast.connect.inprocess import MakeService, open_in_process
from holdfast.connect.scope import Scope
from holdfast.connect.server_requests import ServerRequests
from holdfast.connect.start_folder import start_folder
from holdfast.connect.stdio import open_stdio
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import context_meta
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio
from holdfast.sandbox.keeper.keeper import Keeper


def _ignore(spec: ServerSpec, scope: Scope | None) -> None:
    pass


CheckProgram: TypeAlias = Callable[[ServerSpec, str], Awaitable[frozenset[tuple[str, int, int]]]]
"""Raises an error if a project's server is not approved any more, or its program is not as it was approved.

The second parameter is the session's folder: relative paths in the server's command are meant from there. Returns a stamp of each of its files, which changes with the file.
"""


async def _skip_check(spec: ServerSpec, session_folder: str) -> frozenset[tuple[str, int, int]]:
    return frozenset()


PreparePackage: TypeAlias = Callable[[ServerSpec], Awaitable[ServerSpec]]


async def _keep(spec: ServerSpec) -> ServerSpec:
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Opens the connections of one host."""

    keeper: Keeper
    remote: RemoteConnector
    options: ConnectOptions
    empty_folders: Path
    """Where to create the empty folders that some servers are started in."""
    aliases: ContextAliases = NO_ALIASES
    on_tools_changed: Callable[[ServerSpec, Scope | None], None] = _ignore
    check_program: CheckProgram = _skip_check
    """Called before and after a program is started, and before a project's remote server is connected."""
    prepare_package: PreparePackage = _keep
    """Fetches the package of a confined server that a package runner starts. Returns the spec that runs it."""
    services: Mapping[str, MakeService] = field(default_factory=dict[str, MakeService])
    """Factories of the in-process servers, by service name."""
    confined_folders: ConfinedFolders = field(default_factory=ConfinedFolders)

    def open(self, spec: ServerSpec, scope: Scope | None) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for a scope. Without a scope (for a shared server, or to list tools) it carries no context."""
        door = scope.session_scope.door if scope is not None else None
        requests = ServerRequests(spec, scope, door, lambda: self.on_tools_changed(spec, scope))
        match spec.transport:
            case Stdio():
                meta = _connection_meta(spec, scope, self.aliases)
                return self._open_stdio(spec, scope, requests, meta)
            case Http() | Sse():
                meta = _connection_meta(spec, scope, self.aliases)
                remote = self.remote.open(
                    spec, scope, server_requests=requests, meta=meta, options=self.options
                )
                # Only then, because every idle link keeps the frames of its context managers in memory.
                return self._open_approved(spec, remote) if spec.source is Source.PROJECT else remote
            case InProcess(service=service):
                assert scope is not None, "a built-in server needs a session"
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
    async def _open_stdio(
        self, spec: ServerSpec, scope: Scope | None, requests: ServerRequests, meta: JsonObject
    ) -> AsyncIterator[Connection]:
        """Check the program right before it is started, and again when it runs: it must not have changed in between.

        The roots of a confined server are registered from before it starts until it has ended. All this is one function
        because every idle link keeps the frames of its context managers in memory.
        """
        assert isinstance(spec.transport, Stdio)
        session_folder = scope.context.cwd if scope is not None else ""
        before = await self.check_program(spec, session_folder)
        is_confined = spec.confinement is not None
        started = await self.prepare_package(spec) if is_confined else spec
        started_in = start_folder(
            spec.transport,
            session_folder=session_folder,
            is_confined=is_confined,
            empty_folders=self.empty_folders,
        )
        with self.confined_folders.running(spec.confinement) if is_confined else nullcontext():
            async with (
                started_in as folder,
                open_stdio(
                    started,
                    folder,
                    server_requests=requests,
                    meta=meta,
                    keeper=self.keeper,
                    options=self.options,
                ) as connection,
            ):
                if not before <= await self.check_program(spec, session_folder):
                    raise HoldfastError(
                        codes.NOT_APPROVED,
                        f"The program of {spec.name!r} was replaced while it was being started.",
                    )
                yield connection


def _connection_meta(spec: ServerSpec, scope: Scope | None, aliases: ContextAliases) -> JsonObject:
    if scope is None:
        return {}
    context = spec.lower_context(scope.context)
    folder = context.cwd if isinstance(spec.transport, Stdio) else ""
    return {**aliases.meta(context, folder), **context_meta(context)}
