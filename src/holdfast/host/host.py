"""The host: opens, finds and closes sessions."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from holdfast import settings as settings_module
from holdfast.agent.agent import Agent
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.audit import Audit
from holdfast.audit.delete_sessions import delete_session, delete_unused
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.audit.recovery import recover_sessions
from holdfast.builtin.servers import builtin_servers, in_process_services
from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.connector import Connector
from holdfast.connect.http.login_store import LOGIN_FOLDER
from holdfast.connect.http.remote import RemoteConnector
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope, current_scope, enter_scope, require_scope
from holdfast.host.admission import Admission
from holdfast.host.approval_watch import ApprovalWatch
from holdfast.host.approvals import Approvals
from holdfast.host.data_folder import DATABASE_FILE, KEYS_FOLDER, check_data_folder
from holdfast.host.join import OtherOwner
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import (
    OpenOptions,
    ServerConfigs,
    SessionOptions,
    inherit_options,
    parse_options,
    parse_servers,
)
from holdfast.host.opening import Opener, check_folder
from holdfast.host.packages import FetchedPackage, Packages
from holdfast.host.remote.listener import SessionListener
from holdfast.host.secret_files import SecretFiles
from holdfast.host.session_storage import SessionStorage
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec
from holdfast.model.trust import Trust
from holdfast.resolve.approval_store import approved_program_folders
from holdfast.resolve.command_words import named_scripts
from holdfast.resolve.executed_paths import ExecutedPaths
from holdfast.resolve.inputs import ResolveInputs
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import make_sandbox
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session import Session
from holdfast.settings import Settings
from holdfast.store.lease import is_expired
from holdfast.store.open_store import open_store
from holdfast.store.store import Store
from holdfast.store.types import StoredSession
from holdfast.token.signer import Signer
from holdfast.wire.mcp.tools import Tool
from holdfast.workspaces.registry import WORKSPACES_FOLDER, Registry

log = logging.getLogger(__name__)

EMPTY_FOLDERS = "empty"
_MAX_ID_LENGTH = 256


class Host:
    """Owns sessions and their servers: `async with Host() as host`, then `host.session(…)`."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        servers: ServerConfigs | None = None,
        store: Store | None = None,
        connect_options: ConnectOptions | None = None,
        agent: Agent | None = None,
    ) -> None:
        """All sessions get `servers` in addition to the configured ones. `agent` answers their prompts.

        By default, the settings are those of this machine, the store is in the data folder, and there is no model: the
        user types commands that call tools.
        """
        self.settings = settings or settings_module.load()
        self.registry = Registry(self.settings.data_dir / WORKSPACES_FOLDER)
        self._app_servers = parse_servers(servers or {})
        self._given_store = store
        self._connect_options = connect_options or _connect_options(self.settings)
        self._agent = agent
        self._live = LiveSessions()
        self._opened_by_run: set[Scope] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            sandbox = make_sandbox(self.settings.sandbox.engine, self.settings.sandbox.image)
            inputs = ResolveInputs(
                settings=self.settings,
                builtins=builtin_servers(self.settings),
                app_servers=self._app_servers,
                sandbox=sandbox,
            )
            check_data_folder(self.settings.data_dir)
            obtained = stack.enter_context(
                ObtainedSecrets()
            )  # exited last: closing the store may still write
            secret_files = SecretFiles(self.settings, self.registry, obtained)
            await secret_files.read()
            database = self.settings.data_dir / DATABASE_FILE
            self.store = self._given_store or await stack.enter_async_context(open_store(database))
            hasher = ArgumentHasher(self.settings.data_dir / KEYS_FOLDER)
            hasher.load()
            audit = Audit(self.store, keep_arguments=self.settings.audit.arguments, hash_arguments=hasher)
            self.approvals = Approvals(self.store, audit, pin_tools=self.settings.servers.pin_tools)
            self._admission = Admission(self.settings, self.registry, inputs, self.store, self.approvals)
            self._audit = await stack.enter_async_context(audit)
            await stack.enter_async_context(_in_background(self._clean_up(audit)))
            keeper = self._keeper = await stack.enter_async_context(Keeper(sandbox))
            remote = await stack.enter_async_context(
                RemoteConnector(
                    obtained=obtained,
                    signer=Signer(self.settings.data_dir / KEYS_FOLDER),
                    logins=self.settings.data_dir / LOGIN_FOLDER,
                    reachable=self.settings.servers.reachable,
                )
            )
            confined_folders = ConfinedFolders()
            self.packages = Packages(self.settings, keeper, inputs.environ)
            self._executed = ExecutedPaths(self.settings, self._app_servers, inputs.environ, self.store)
            connector = Connector(
                keeper=keeper,
                confined_folders=confined_folders,
                remote=remote,
                options=self._connect_options,
                empty_folders=self.settings.data_dir / EMPTY_FOLDERS,
                aliases=self.settings.aliases,
                on_tools_changed=self._live.refresh_tools,
                check_program=self.approvals.check_program_files,
                prepare_package=self._prepare_confined,
                services=in_process_services(self.settings, confined_folders, self._executed),
            )
            self._connector = connector
            links = self.settings.links
            self.links = LinkPool(
                connector.open,
                max_links=links.max_open,
                idle_seconds=links.idle_seconds,
                shared_idle_seconds=links.shared_idle_seconds,
                back_off=self._connect_options.back_off,
                aliases=self.settings.aliases,
            )
            self._opener = Opener(
                storage=SessionStorage(self.store, audit),
                links=self.links,
                live=self._live,
                connect_options=self._connect_options,
                argument_checker=ArgumentChecker(),
                agent=self._agent or _manual_agent(),
                obtained=obtained,
                secret_files=secret_files,
                wait_seconds=self.settings.permission.wait,
            )
            known_folders = await self.store.read(approved_program_folders)
            watch = ApprovalWatch(self.store, self.links, known_folders)
            self.approvals.on_change = watch.check
            await stack.enter_async_context(_in_background(watch.run()))
            if self.store.holder_id:
                await stack.enter_async_context(
                    SessionListener(self.settings.data_dir, self.store.holder_id, self._live.find)
                )
            stack.push_async_callback(self._close_all)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # Sessions

    @asynccontextmanager
    async def session(self, **options: Unpack[SessionOptions]) -> AsyncIterator[Session]:
        """Open a session for a block. Its servers are available (or refused) when the block begins, and closed when it ends.

        `SessionOptions` describes the options.
        """
        async with self._open_for_block(parse_options(options)) as session:
            yield session

    @asynccontextmanager
    async def run(
        self, *, isolate: bool = False, **options: Unpack[SessionOptions]
    ) -> AsyncIterator[Session]:
        """One run of an agent.

        Outside of a session, the run opens a session with these options, and closes it at the end. Inside a session, it
        uses that session, and closes the servers of lifetime `run` at the end. Inside another run, it joins that run and
        closes nothing. With `isolate`, it always opens and closes a session of its own, and so has its own servers. Inside
        another session, it takes the options that are not given from that session, and never gets more rights.
        """
        outer = current_scope()
        if outer is not None:
            outer.check_open()
        if outer is None or isolate:
            opening = parse_options(options) if outer is None else self._options_inside(outer, options)
            async with self._open_for_block(opening) as session:
                self._opened_by_run.add(session.scope)
                try:
                    yield session
                finally:
                    self._opened_by_run.discard(session.scope)
            return
        session = self._live.find_by_scope(outer)
        if options:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"This run joins the session {outer.context.session_id}, so `{next(iter(options))}` would have no effect.",
                hint="Leave the options out, or pass isolate=True for a session of its own.",
            )
        if outer is not outer.session_scope or outer in self._opened_by_run:
            yield session
            return
        scope = Scope(outer.context, session_scope=outer)
        try:
            with enter_scope(scope):
                yield session
        finally:
            await run_to_completion(self.links.close_scope(scope))

    @asynccontextmanager
    async def _open_for_block(self, options: OpenOptions) -> AsyncIterator[Session]:
        session = await self.open(options)
        try:
            await session.wait_ready_and_store()
            with enter_scope(session.scope):
                yield session
        finally:
            await session.close()

    def _options_inside(self, outer: Scope, given: SessionOptions) -> OpenOptions:
        """The options of a session that a run opens inside another session. That must be an open session of this host."""
        parent = self._live.find_by_scope(outer)
        if parent.is_closing:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"The session {parent.context.session_id} is being closed, so no run can start in it.",
            )
        return inherit_options(given, parent, self._live.options_of(parent))

    async def open(self, options: OpenOptions) -> Session:
        """Open a new session. Returns while its servers are starting."""
        return await self._opener.open_new(await self._admission.plan(options))

    async def reopen(self, session_id: str, options: OpenOptions) -> Session:
        """Resume a stored session in its folder. If it is live in this host, join it."""
        stored = await self.find_session(session_id, options.user_id)
        return await self._opener.open_stored(stored, await self._admission.plan(options))

    async def find_owner(self, session_id: str, options: OpenOptions) -> OtherOwner | None:
        """The other process that has a stored session open, or None. Checks the user and the folder, as `reopen` does."""
        stored = await self.find_session(session_id, options.user_id)
        lease, own = stored.lease, self.store.holder_id
        if lease is None or own in ("", lease.holder) or is_expired(lease, self.store.now()):
            return None
        plan = await self._admission.plan(options)
        check_folder(stored, plan)
        return OtherOwner(lease=lease, requested=plan.context)

    def find_live(self, session_id: str) -> Session | None:
        """The session with this id, if it is open in this host."""
        return self._live.find(session_id)

    async def find_session(self, session_id: str, user_id: str | None = None) -> StoredSession:
        """Find a stored session of this user. Another user's session gives the same error as one that does not exist."""
        try:
            known = parse_session_id(session_id)
            stored = await self.store.session(known)
        except HoldfastError as error:
            if error.code is not codes.BAD_ID:
                raise
            known, stored = SessionId(""), None
        if stored is not None and stored.context.user_id == user_id:
            return stored
        # Both cases do the same work, so that their duration does not reveal which one it is.
        reason = "it is another user's" if stored is not None else "there is none"
        context = SessionContext(session_id=known, trust_level=Trust.SANDBOXED, user_id=user_id)
        denied = make_record(
            AuditKind.DENIED,
            context,
            Subject(),
            at=self.store.now(),
            outcome=codes.UNKNOWN_SESSION.name,
            reason=reason,
        )
        await run_to_completion(self._audit.write(denied))
        raise HoldfastError(
            codes.UNKNOWN_SESSION,
            f"There is no session {session_id[:80]!r}.",
            session_id=session_id[:_MAX_ID_LENGTH],
        )

    async def _clean_up(self, audit: Audit) -> None:
        """Close the sessions of hosts that ended without closing them, and delete those that are no longer kept."""
        await recover_sessions(self.store, audit)
        if days := self.settings.sessions.keep_days:
            deleted = await delete_unused(self.store, audit, timedelta(days=days))
            if deleted:
                log.info("unused sessions deleted", extra={"sessions": deleted, "keep_days": days})

    async def delete_session(self, session_id: str, user_id: str | None = None) -> None:
        """Delete a stored session of this user. Raises SESSION_HELD if it is open."""
        context = (await self.find_session(session_id, user_id)).context
        await delete_session(self.store, self._audit, context.session_id)

    async def prune(self, older_than: timedelta) -> int:
        """Delete the stored sessions that were not used for this long. Their audit records are kept. Return how many."""
        return await delete_unused(self.store, self._audit, older_than)

    async def plan(self, options: OpenOptions) -> tuple[LoadedEntries, Resolution]:
        """The configured entries, and the servers a session would get, without opening one."""
        return await (await self._admission.plan(options)).preview()

    async def trust_of(self, options: OpenOptions) -> Trust:
        """The trust that a session with these options would have."""
        return (await self._admission.plan(options)).context.trust_level

    async def program_paths(
        self, command: Sequence[str], folder: str, package: FetchedPackage | None = None
    ) -> tuple[str, ...]:
        """The paths outside of a project's folder that a confined server with this command would see as its program.

        `package` is the package that the command runs, if a package runner starts it.
        """
        confinement = Confinement(
            roots=(folder,),
            scripts=named_scripts(command),
            protected=paths_hidden_from_sandboxes(self.settings),
        )
        if package is not None:
            command, confinement = package.argv, package.apply_to(confinement)
        path = {"PATH": os.environ.get("PATH", os.defpath)}
        spec = ProcessSpec(argv=tuple(command), env=path, cwd=folder, confinement=confinement)
        return await self._keeper.program_paths(spec)

    async def _prepare_confined(self, spec: ServerSpec) -> ServerSpec:
        """The confined server as it is started now, with its package, if a package runner starts it."""
        return await self.packages.prepare(await self._executed.protect(spec))

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool of the session that this code runs in; raises NO_CONTEXT outside of a session."""
        return await self._live.find_by_scope(require_scope()).call(name, arguments)

    async def tools(self, *, cwd: str | Path = "") -> tuple[CatalogTool, ...]:
        """The tools that a session in this folder would have. Starts the servers, lists their tools, and closes them."""
        plan = await self._admission.plan(OpenOptions(cwd=cwd or Path.cwd()))
        scope, admitted = Scope(plan.context), await plan.admit()

        async def list_tools(spec: ServerSpec) -> tuple[ServerSpec, tuple[Tool, ...]]:
            try:
                async with self._connector.open(spec, scope) as connection:
                    tools = await connection.list_tools(timeout=self._connect_options.list_seconds)
                    return spec, (await plan.screen(spec, tools, admitted.mask, scope.throttle)).offered
            except HoldfastError as error:
                log.warning(
                    "could not list the tools of a server",
                    extra={"server": spec.name, "reason": error.message},
                )
                return spec, ()

        return build_catalog(await asyncio.gather(*map(list_tools, admitted.resolution.servers))).tools

    async def _close_all(self) -> None:
        await self._live.close_all("the host was closed")
        await self.links.close()


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background; cancel it when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        for failure in await asyncio.gather(task, return_exceptions=True):
            if isinstance(failure, HoldfastError):
                log.error("background work failed", extra={"reason": failure.message})
            elif isinstance(failure, Exception):
                log.error("background work failed", exc_info=failure)


def _manual_agent() -> Agent:
    from holdfast.agent.slash_commands import ManualAgent

    return ManualAgent()


def _connect_options(settings: Settings) -> ConnectOptions:
    links = settings.links
    return ConnectOptions(
        limits=settings.wire,
        connect_seconds=links.connect_seconds,
        list_seconds=links.list_seconds,
        call_seconds=links.call_seconds,
    )
