"""The host: opens, finds and closes sessions."""

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast import settings as settings_module
from holdfast import telemetry
from holdfast.audit.anchor import Anchor, FileAnchor, MemoryAnchor
from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.audit.recovery import recover_session, recover_sessions
from holdfast.builtin.servers import builtin_servers, in_process_services
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.connector import Connector
from holdfast.connect.http.login_store import LOGIN_FOLDER
from holdfast.connect.http.remote import RemoteConnector
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope, current_scope, enter_scope, require_scope
from holdfast.host.approvals import Approvals
from holdfast.host.data_folder import check_data_folder
from holdfast.host.open_options import OpenOptions, Planner
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.json import Json
from holdfast.model.mask import Mask
from holdfast.model.obtained_secrets import ObtainedSecrets
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec
from holdfast.model.trust import Trust, lowest_trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.resolve.inputs import ResolveInputs
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.resolve import ResolvePolicy, resolve_in_thread
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import detect_sandbox
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session import Session, SessionDeps
from holdfast.settings import Settings
from holdfast.store.errors import is_transient
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from holdfast.store.types import NewSession, StoredSession
from holdfast.token.signer import Signer
from holdfast.wire.mcp.tools import Tool
from holdfast.workspaces.registry import Registry

log = logging.getLogger(__name__)

DATABASE = "holdfast.db"
WORKSPACES = "workspaces"
KEYS = "keys"
EMPTY_FOLDERS = "empty"
_MAX_ID_LENGTH = 256
_MAX_SECRETS_ON_LOOP = 5000
_MASK_THREADS = WorkerThreads("log-mask", threads=2)


class Host:
    """Owns sessions and their servers: `async with Host() as host`, then `host.session(…)`."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        servers: Mapping[str, Json] | None = None,
        store: Store | None = None,
        connect_options: ConnectOptions | None = None,
    ) -> None:
        self.settings = settings or settings_module.load()
        self.registry = Registry(self.settings.data_dir / WORKSPACES)
        self._inline_servers = servers or {}
        self._given_store = store
        self._connect_options = connect_options or _connect_options(self.settings)
        self._sessions: dict[Scope, Session] = {}
        self._doors: dict[Scope, Door] = {}
        self._opened_by_run: set[Scope] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            detected = await detect_sandbox(self.settings.sandbox.engine, self.settings.sandbox.image)
            inputs = ResolveInputs(
                settings=self.settings,
                builtins=builtin_servers(self.settings),
                inline_servers=self._inline_servers,
                sandbox_problem=detected.reason,
            )
            check_data_folder(self.settings.data_dir)
            obtained = stack.enter_context(ObtainedSecrets())  # exits last: closing the store may still write
            database = self.settings.data_dir / DATABASE
            self.store = self._given_store or await stack.enter_async_context(SqliteStore(database))
            self._planner = Planner(self.settings, self.registry, inputs, self.store)
            self.approvals = Approvals(self.store, pin_tools=self.settings.servers.pin_tools)
            audit = Audit(self.store, _anchor(self.store), keep_arguments=self.settings.audit.arguments)
            self._audit = await stack.enter_async_context(audit)
            await stack.enter_async_context(_in_background(recover_sessions(self.store, audit)))
            keeper = await stack.enter_async_context(Keeper(detected.sandbox))
            remote = await stack.enter_async_context(
                RemoteConnector(
                    obtained=obtained,
                    signer=Signer(self.settings.data_dir / KEYS),
                    logins=self.settings.data_dir / LOGIN_FOLDER,
                    reachable=self.settings.servers.reachable,
                )
            )
            confined_folders = ConfinedFolders()
            connector = Connector(
                keeper=keeper,
                confined_folders=confined_folders,
                remote=remote,
                options=self._connect_options,
                empty_folders=self.settings.data_dir / EMPTY_FOLDERS,
                aliases=self.settings.aliases,
                door=self._doors.get,
                on_tools_changed=self._on_tools_changed,
                check_program=self._check_program,
                services=in_process_services(self.settings, confined_folders),
            )
            self._connector = connector
            links = self.settings.links
            self.links = LinkPool(
                connector.open,
                max_links=links.max_open,
                idle_seconds=links.idle_seconds,
                shared_idle_seconds=links.shared_idle_seconds,
                aliases=self.settings.aliases,
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
    async def session(
        self,
        *,
        cwd: str | Path = "",
        workspace: str = "",
        trust: Trust | None = None,
        servers: Sequence[Json] = (),
    ) -> AsyncIterator[Session]:
        """Open a session for a block. Its servers are available (or refused) when the block begins, and closed when it ends."""
        options = OpenOptions(cwd=cwd or Path.cwd(), workspace=workspace, trust=trust, servers=tuple(servers))
        session = await self.open(options)
        try:
            await session.wait_for_servers()
            with enter_scope(session.scope):
                yield session
        finally:
            await self.close_session(session)

    @asynccontextmanager
    async def run(self, *, isolate: bool = False) -> AsyncIterator[Session]:
        """One run of an agent.

        Outside of a session, the run opens a session and closes it at the end. Inside a session, it uses that session,
        and closes the servers of lifetime `run` at the end. Inside another run, it joins that run and closes nothing.
        With `isolate`, it always opens and closes its own session, and so has its own servers.
        """
        outer = current_scope()
        if outer is not None:
            outer.check_open()
        if outer is None or isolate:
            parent = outer.context if outer is not None else None
            cwd = parent.cwd if parent is not None and parent.cwd else Path.cwd()
            session = await self.open(OpenOptions(cwd=cwd, parent=parent))
            self._opened_by_run.add(session.scope)
            try:
                await session.wait_for_servers()
                with enter_scope(session.scope):
                    yield session
            finally:
                await self.close_session(session)
            return
        session = self._find_by_scope(outer)
        if outer is not outer.session_scope or outer in self._opened_by_run:
            yield session
            return
        scope = Scope(outer.context, session_scope=outer)
        try:
            with enter_scope(scope):
                yield session
        finally:
            await run_to_completion(self.links.close_scope(scope))

    async def open(self, options: OpenOptions) -> Session:
        """Open a session. Returns while its servers are starting."""
        context, workspace = await self._planner.new_session_context(options)
        new = NewSession(context=context, title=options.title, source=options.opened_by)

        def create(tx: Tx) -> None:
            tx.create(new)
            tx.acquire(context.session_id)

        def undo(tx: Tx) -> None:
            tx.delete(context.session_id)

        await self._acquire(create, undo)
        try:
            return await self._start_session(context, workspace, options)
        except BaseException:
            await run_to_completion(self._roll_back(undo))
            raise

    async def reopen(self, session_id: str, options: OpenOptions) -> Session:
        """Resume a stored session in its folder. A turn that a crash interrupted is ended first."""
        stored = await self.find_session(session_id, options.user_id)
        context, workspace = await self._planner.new_session_context(options)
        kept = stored.context
        if context.cwd != kept.cwd:
            move = shlex.join(["holdfast", "sessions", "move", session_id, context.cwd])
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The session was opened in {kept.cwd}, not in {context.cwd}. To move it: {move}",
                hint=f"Open it in {kept.cwd}, or move it: {move}",
                cwd=kept.cwd,
            )

        def acquire(tx: Tx) -> None:
            tx.acquire(kept.session_id)
            self._audit.end_and_record_interrupted(tx, kept)

        await self._acquire(acquire, lambda tx: tx.release(kept.session_id))
        context = replace(
            context,
            session_id=kept.session_id,
            trust_level=lowest_trust(context.trust_level, kept.trust_level),
            parent_session_id=kept.parent_session_id,
        )
        return await self._start_session(context, workspace, options)

    async def _acquire(self, work: Callable[[Tx], None], undo: Callable[[Tx], None]) -> None:
        """Acquire a session's lease, in one transaction with other work. If the caller is cancelled, all of it is rolled back."""
        written = False

        async def write() -> None:
            nonlocal written
            await self.store.write(work)
            written = True

        try:
            await run_to_completion(write())
        except asyncio.CancelledError:
            if written:
                await run_to_completion(self._roll_back(undo))
            raise

    async def _roll_back(self, undo: Callable[[Tx], None]) -> None:
        """Undo the writes of a session open that failed. If the store is busy or full, the undo is deferred."""
        try:
            await self.store.write(undo)
        except HoldfastError as error:
            log.warning("could not roll back a failed session open", extra={"reason": error.message})
            if is_transient(error):
                self.store.defer(undo)

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
            AuditKind.DENIED, context, Subject(), outcome=codes.UNKNOWN_SESSION.name, reason=reason
        )
        await run_to_completion(self._audit.write(denied))
        raise HoldfastError(
            codes.UNKNOWN_SESSION,
            f"There is no session {session_id[:80]!r}.",
            session_id=session_id[:_MAX_ID_LENGTH],
        )

    async def delete_session(self, session_id: str, user_id: str | None = None) -> None:
        """Delete a stored session of this user. Raises SESSION_HELD if it is open."""
        context = (await self.find_session(session_id, user_id)).context

        def delete(tx: Tx) -> None:
            # Audit interrupted calls first: deleting the session deletes their events.
            recover_session(tx, self._audit, context.session_id)
            tx.delete(context.session_id)

        await self.store.write(delete)

    async def _start_session(
        self, context: SessionContext, workspace: Workspace | None, options: OpenOptions
    ) -> Session:
        async def resolve_again(new_context: SessionContext) -> Resolution:
            return await self._resolve(*await self._planner.prepare(options, new_context, workspace))

        scope = Scope(context)
        try:
            loaded, context, policy = await self._planner.prepare(options, context, workspace)
            resolution = await self._resolve(loaded, context, policy)
            deps = SessionDeps(
                links=self.links,
                options=self._connect_options,
                resolve=resolve_again,
                screen=partial(self.approvals.screen, owner=context.user_id or ""),
            )
            mask, question_mask = await self._planner.masks(loaded, resolution, policy)
            await _change_log_mask(telemetry.add_mask, mask)
            record = Record(context, self.store, self._audit, mask, question_mask)
            session = Session(scope, resolution, record, deps)
        except BaseException:
            await run_to_completion(self.store.release(context.session_id))
            raise
        self._sessions[scope] = session
        if options.door is not None:
            self._doors[scope] = options.door
        try:
            await session.open()
        except BaseException:
            await self.close_session(session)
            raise
        return session

    async def plan(self, options: OpenOptions) -> tuple[LoadedEntries, Resolution]:
        """The configured entries, and the servers a session would get, without opening one."""
        context, workspace = await self._planner.new_session_context(options)
        loaded, context, policy = await self._planner.prepare(options, context, workspace)
        return loaded, await self._resolve(loaded, context, policy)

    async def _resolve(
        self, loaded: LoadedEntries, context: SessionContext, policy: ResolvePolicy
    ) -> Resolution:
        resolution = await resolve_in_thread(loaded, context, policy)
        return await self.approvals.refuse_changed_programs(resolution, context.cwd)

    async def close_session(self, session: Session, reason: str = "closed") -> None:
        """Close a session: its links are closed, its events are on disk, and another host may resume it.

        If the caller is cancelled, the session is closed before the cancellation is raised.
        """
        await run_to_completion(self._close_session(session, reason))

    async def _close_session(self, session: Session, reason: str) -> None:
        known = self._sessions.pop(session.scope, None)
        self._doors.pop(session.scope, None)
        self._opened_by_run.discard(session.scope)
        try:
            await session.close(reason)
        finally:
            if known is not None:
                await _change_log_mask(telemetry.remove_mask, session.record.mask)
            await self.store.release(session.context.session_id)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool of the session that this code runs in; raises NO_CONTEXT outside of a session."""
        return await self._find_by_scope(require_scope()).call(name, arguments)

    async def tools(self, *, cwd: str | Path = "") -> tuple[CatalogTool, ...]:
        """The tools that a session in this folder would have. Starts the servers, lists their tools, and closes them."""
        options = OpenOptions(cwd=cwd or Path.cwd())
        context, workspace = await self._planner.new_session_context(options)
        scope = Scope(context)

        async def list_tools(spec: ServerSpec) -> tuple[ServerSpec, tuple[Tool, ...]]:
            try:
                async with self._connector.open(spec, scope) as connection:
                    tools = await connection.list_tools(timeout=self._connect_options.list_seconds)
                    return spec, (await self.approvals.screen(spec, tools)).offered
            except HoldfastError as error:
                log.warning(
                    "could not list the tools of a server",
                    extra={"server": spec.name, "reason": error.message},
                )
                return spec, ()

        resolution = await self._resolve(*await self._planner.prepare(options, context, workspace))
        return build_catalog(await asyncio.gather(*map(list_tools, resolution.servers))).tools

    def _find_by_scope(self, scope: Scope) -> Session:
        session = self._sessions.get(scope.session_scope)
        if session is None:
            raise HoldfastError(codes.SCOPE_CLOSED, "This code is not part of an open session of this host.")
        return session

    async def _check_program(self, spec: ServerSpec, folder: str) -> frozenset[tuple[str, int, int]]:
        program = await self.approvals.check_program(spec, folder)
        return program.stamps if program is not None else frozenset()

    def _on_tools_changed(self, spec: ServerSpec, scope: Scope | None) -> None:
        for session in [*self._sessions.values()]:
            if scope is None or session.scope is scope.session_scope:
                session.refresh_tools(spec.name)

    async def _close_all(self) -> None:
        closing = [self.close_session(session, "the host was closed") for session in self._sessions.values()]
        for failure in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(failure, Exception):
                log.error("could not close a session cleanly", exc_info=failure)
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


async def _change_log_mask(change: Callable[[Mask], None], mask: Mask) -> None:
    """Add or remove a session's secrets in the log's mask; very many of them in a thread."""
    if len(mask.secrets) > _MAX_SECRETS_ON_LOOP:
        await _MASK_THREADS.run(change, mask)
    else:
        change(mask)


def _anchor(store: Store) -> Anchor:
    return FileAnchor.for_database(store.path) if isinstance(store, SqliteStore) else MemoryAnchor()


def _connect_options(settings: Settings) -> ConnectOptions:
    links = settings.links
    return ConnectOptions(
        limits=settings.wire,
        connect_seconds=links.connect_seconds,
        list_seconds=links.list_seconds,
        call_seconds=links.call_seconds,
    )
