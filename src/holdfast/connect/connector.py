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
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio
from holdfast.sandbox.keeper.keeper import Keeper


def _ignore(spec: ServerSpec, scope: Scope | None) -> None:
    pass


CheckProgram: TypeAlias = Callable[[ServerSpec, str], Awaitable[frozenset[tuple[str, int, int]]]]
"""Raises an error if a project server's program is not as it was approved.

The second parameter is the session's folder: relative paths in the server's command are meant from there. Returns a stamp of each of its files, which changes with the file.
"""


async def _skip_check(spec: ServerSpec, session_folder: str) -> frozenset[tuple[str, int, int]]:
    return frozenset()


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
    """Called before and after a program is started."""
    services: Mapping[str, MakeService] = field(default_factory=dict[str, MakeService])
    """Factories of the in-process servers, by service name."""
    confined_folders: ConfinedFolders = field(default_factory=ConfinedFolders)

    def open(self, spec: ServerSpec, scope: Scope | None) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for a scope. Without a scope (for a shared server, or to list tools) it carries no context."""
        door = scope.session_scope.door if scope is not None else None
        requests = ServerRequests(spec, scope, door, lambda: self.on_tools_changed(spec, scope))
        match spec.transport:
            case Stdio():
                meta = _connection_meta(scope, self.aliases, is_local=True)
                return self._open_stdio(spec, scope, requests, meta)
            case Http() | Sse():
                meta = _connection_meta(scope, self.aliases, is_local=False)
                return self.remote.open(
                    spec, scope, server_requests=requests, meta=meta, options=self.options
                )
            case InProcess(service=service, read_only=read_only):
                assert scope is not None, "a built-in server needs a session"
                instance = self.services[service](scope.context, door, read_only)
                return open_in_process(spec, instance, server_requests=requests, options=self.options)

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
                    spec,
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


def _connection_meta(scope: Scope | None, aliases: ContextAliases, *, is_local: bool) -> JsonObject:
    if scope is None:
        return {}
    context = scope.context
    return {**aliases.meta(context, context.cwd if is_local else ""), **context_meta(context)}
