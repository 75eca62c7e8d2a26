"""The composition root: opens sessions, finds them, and closes all of them."""

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast import settings as settings_module
from holdfast import telemetry
from holdfast.audit.abandoned import end_abandoned, settle
from holdfast.audit.anchor import Anchor, FileAnchor, MemoryAnchor
from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, record
from holdfast.builtin.builtins import builtins, services
from holdfast.connect.call import Answer
from holdfast.connect.catalog import Offer, catalog
from holdfast.connect.connector import Connector
from holdfast.connect.links import Links
from holdfast.connect.logins import LOGINS
from holdfast.connect.remote import Remote
from holdfast.connect.scope import Scope, current_scope, entered, require_scope
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, new_session_id, parse_session_id
from holdfast.model.json import Json
from holdfast.model.mask import Mask, secrets_in
from holdfast.model.ports import Door
from holdfast.model.resolution import Resolution
from holdfast.model.secrets import secrets_of
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust, lowest
from holdfast.model.workspace import Workspace
from holdfast.resolve.approval import subject
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.gather import Ground, gather
from holdfast.resolve.pinned import FIRST_USE, of_tools, pin, pins_of
from holdfast.resolve.pins import Sifted, sifting
from holdfast.resolve.resolve import Policy, resolve
from holdfast.resolve.select import Narrowing
from holdfast.resolve.turns import in_turns
from holdfast.sandbox.keeper import Keeper
from holdfast.sandbox.sandbox import available
from holdfast.session.outlast import outlast
from holdfast.session.record import Record
from holdfast.session.session import Means, Session
from holdfast.settings import Settings
from holdfast.store.database import passes
from holdfast.store.rows import Approval, NewSession, StoredSession
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from holdfast.token.signer import Signer
from holdfast.wire.mcp.tools import Tool
from holdfast.workspaces.registry import Registry

log = logging.getLogger(__name__)

DATABASE = "holdfast.db"
WORKSPACES = "workspaces"
KEYS = "keys"
_LONGEST_ID = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a session is opened with. Trust can only be asked down; a folder is absolute and exists."""

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust | None = None
    servers: tuple[Json, ...] = ()
    user_id: str | None = None
    parent: SessionContext | None = None
    title: str = ""
    source: str = "python"
    narrowing: Narrowing | None = None
    """What an agent's definition makes do with."""
    only: str | None = None
    """The one server that the session is about; the others are not looked at."""
    door: Door | None = field(default=None, compare=False)
    """What the session may ask of whoever opened it."""


class Host:
    """Keeps sessions and their servers: `async with Host() as host`, then `host.session(…)`."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        servers: Mapping[str, Json] | None = None,
        store: Store | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.settings = settings or settings_module.load()
        self.registry = Registry(self.settings.data_dir / WORKSPACES)
        self._inline = servers or {}
        self._own_store = store
        self._terms = terms or _terms(self.settings)
        self._sessions: dict[Scope, Session] = {}
        self._doors: dict[Scope, Door] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            found = await available(self.settings.sandbox.engine, self.settings.sandbox.image)
            self._ground = Ground(
                settings=self.settings,
                builtins=builtins(self.settings),
                inline=self._inline,
                no_sandbox=found.why_not,
            )
            database = self.settings.data_dir / DATABASE
            self.store = self._own_store or await stack.enter_async_context(SqliteStore(database))
            audit = Audit(self.store, _anchor(self.store), arguments=self.settings.audit.arguments)
            self._audit = await stack.enter_async_context(audit)
            await stack.enter_async_context(_beside(end_abandoned(self.store, audit)))
            keeper = await stack.enter_async_context(Keeper(found.sandbox))
            remote = await stack.enter_async_context(
                Remote(
                    signer=Signer(self.settings.data_dir / KEYS),
                    logins=self.settings.data_dir / LOGINS,
                    reachable=self.settings.servers.reachable,
                )
            )
            connector = Connector(
                keeper=keeper,
                remote=remote,
                terms=self._terms,
                aliases=self.settings.aliases,
                door=self._doors.get,
                tools_changed=self._tools_changed,
                builtins=services(self.settings),
            )
            self._connector = connector
            links = self.settings.links
            self.links = Links(
                connector.open,
                most=links.most,
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
        """A session for the length of a block: its servers are up when it begins, and gone when it ends."""
        opening = Opening(cwd=cwd or Path.cwd(), workspace=workspace, trust=trust, servers=tuple(servers))
        session = await self.open(opening)
        try:
            await session.settle()
            with entered(session.scope):
                yield session
        finally:
            await self.close_session(session)

    @asynccontextmanager
    async def run(self, *, isolate: bool = False) -> AsyncIterator[Session]:
        """One run of an agent. Inside a session or another run it joins in; only the outermost closes anything.

        With `isolate`, a run inside another gets a session, and so servers, of its own.
        """
        outer = current_scope()
        if outer is not None:
            outer.check_open()
        if outer is None or isolate:
            parent = outer.context if outer is not None else None
            cwd = parent.cwd if parent is not None and parent.cwd else Path.cwd()
            session = await self.open(Opening(cwd=cwd, parent=parent))
            try:
                await session.settle()
                with entered(session.scope):
                    yield session
            finally:
                await self.close_session(session)
            return
        session = self._session_of(outer)
        if outer is not outer.home:
            yield session
            return
        scope = Scope(outer.context, home=outer)
        try:
            with entered(scope):
                yield session
        finally:
            await outlast(self.links.close_scope(scope))

    async def open(self, opening: Opening) -> Session:
        """Open a session; its servers are starting when this returns."""
        context, workspace = self._context(opening)
        new = NewSession(context=context, title=opening.title, source=opening.source)

        def create(tx: Tx) -> None:
            tx.create(new)
            tx.hold(context.session_id)

        def undo(tx: Tx) -> None:
            tx.delete(context.session_id)

        await self._hold(create, undo)
        try:
            return await self._begin(context, workspace, opening)
        except BaseException:
            await outlast(self._undone(undo))  # nobody ever heard of it
            raise

    async def reopen(self, session_id: str, opening: Opening) -> Session:
        """Take a stored session up again, in the folder it was opened in; a turn that a crash cut off is ended."""
        stored = await self.find(session_id, opening.user_id)
        context, workspace = self._context(opening)
        kept = stored.context
        if context.cwd != kept.cwd:
            move = shlex.join(["holdfast", "sessions", "move", session_id, context.cwd])
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The session was opened in {kept.cwd}, not in {context.cwd}. To move it: {move}",
                hint=f"Open it in {kept.cwd}, or move it: {move}",
                cwd=kept.cwd,
            )

        def take_up(tx: Tx) -> None:
            tx.hold(kept.session_id)
            self._audit.end_interrupted(tx, kept)

        await self._hold(take_up, lambda tx: tx.let_go(kept.session_id))
        context = replace(
            context,
            session_id=kept.session_id,
            trust_level=lowest(context.trust_level, kept.trust_level),
            parent_session_id=kept.parent_session_id,
        )
        return await self._begin(context, workspace, opening)

    async def _hold(self, work: Callable[[Tx], None], undo: Callable[[Tx], None]) -> None:
        """Take hold of a session, and all else in one transaction; who is cancelled meanwhile holds nothing."""
        held = False

        async def hold() -> None:
            nonlocal held
            await self.store.write(work)
            held = True

        try:
            await outlast(hold())
        except asyncio.CancelledError:
            if held:
                await outlast(self._undone(undo))
            raise

    async def _undone(self, undo: Callable[[Tx], None]) -> None:
        """Take back what was written for a session that is not opened, now or as soon as it can be."""
        try:
            await self.store.write(undo)
        except HoldfastError as error:
            log.warning("opening not taken back", extra={"reason": error.message})
            if passes(error):
                self.store.owe(undo)

    async def find(self, session_id: str, user_id: str | None = None) -> StoredSession:
        """A stored session of this user's; anybody else's looks exactly like one that is not there."""
        try:
            known = parse_session_id(session_id)
            stored = await self.store.session(known)
        except HoldfastError as error:
            if error.code is not codes.BAD_ID:
                raise
            known, stored = SessionId(""), None
        if stored is not None and stored.context.user_id == user_id:
            return stored
        # The same work for both, so that time tells nothing either.
        whose = "it is another owner's" if stored is not None else "there is none"
        context = SessionContext(session_id=known, trust_level=Trust.SANDBOXED, user_id=user_id)
        note = record(AuditKind.DENIED, context, Subject(), outcome=codes.UNKNOWN_SESSION.name, reason=whose)
        await outlast(self._audit.record(note))
        named = session_id[:_LONGEST_ID]
        raise HoldfastError(codes.UNKNOWN_SESSION, f"There is no session {named[:80]!r}.", sessionId=named)

    async def forget(self, session_id: str, user_id: str | None = None) -> None:
        """Delete a stored session of this user's; one that somebody has open is refused."""
        context = (await self.find(session_id, user_id)).context

        def forget(tx: Tx) -> None:
            settle(tx, self._audit, context.session_id)  # with its events would go what is known of it
            tx.delete(context.session_id)

        await self.store.write(forget)

    async def _begin(self, context: SessionContext, workspace: Workspace | None, opening: Opening) -> Session:
        async def resolved(now: SessionContext) -> Resolution:
            return resolve(*await self._gathered(opening, now, workspace))

        scope = Scope(context)
        try:
            gathered = await self._gathered(opening, context, workspace)
            resolution = resolve(*gathered)
            means = Means(links=self.links, terms=self._terms, resolve=resolved, screen=self._screen)
            mask = self._mask(gathered[0], resolution)
            record = Record(context, self.store, self._audit, mask)
            session = Session(scope, resolution, record, means)
        except BaseException:
            await outlast(self.store.let_go(context.session_id))
            raise
        telemetry.hide(mask)
        self._sessions[scope] = session
        if opening.door is not None:
            self._doors[scope] = opening.door
        try:
            await session.open()
        except BaseException:
            await self.close_session(session)
            raise
        return session

    async def plan(self, opening: Opening) -> tuple[Loaded, Resolution]:
        """What a session would be given, without opening one: the entries that were read, and what became of them."""
        context, workspace = self._context(opening)
        loaded, context, policy = await self._gathered(opening, context, workspace)
        return loaded, resolve(loaded, context, policy)

    async def _gathered(
        self, opening: Opening, context: SessionContext, workspace: Workspace | None
    ) -> tuple[Loaded, SessionContext, Policy]:
        loaded, policy = await gather(self._ground, self.store, context, workspace, opening.servers)
        if opening.only is not None:
            entries = tuple(entry for entry in loaded.entries if entry.name == opening.only)
            loaded = replace(loaded, entries=entries)
            ours = tuple(spec for spec in policy.builtins if spec.name == opening.only)
            policy = replace(policy, builtins=ours)
        if opening.narrowing is not None:
            policy = replace(policy, narrowings=(*policy.narrowings, opening.narrowing))
        return loaded, context, policy

    async def close_session(self, session: Session, reason: str = "closed") -> None:
        """Close a session: its links end, its events are on disk, and another host may take it up.

        Whoever is cancelled meanwhile, once or again and again, waits for the end of it all the same.
        """
        await outlast(self._close_session(session, reason))

    async def _close_session(self, session: Session, reason: str) -> None:
        known = self._sessions.pop(session.scope, None)
        self._doors.pop(session.scope, None)
        try:
            await session.close(reason)
        finally:
            if known is not None:
                telemetry.unhide(session.record.mask)
            await self.store.let_go(session.context.session_id)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Answer:
        """Call a tool of the session that this code runs in; outside of any, that is an error."""
        return await self._session_of(require_scope()).call(name, arguments)

    async def tools(self, *, cwd: str | Path = "") -> tuple[Offer, ...]:
        """The tools a session in this folder would have, by links that are gone when this returns."""
        opening = Opening(cwd=cwd or Path.cwd())
        context, workspace = self._context(opening)
        scope = Scope(context)

        async def listed(spec: ServerSpec) -> tuple[ServerSpec, tuple[Tool, ...]]:
            try:
                async with self._connector.open(spec, scope) as connection:
                    tools = await connection.tools(timeout=self._terms.list_seconds)
                    return spec, (await self._screen(spec, tools)).offered
            except HoldfastError as error:
                log.warning("server left out", extra={"server": spec.name, "reason": error.message})
                return spec, ()

        specs = resolve(*await self._gathered(opening, context, workspace)).servers
        return catalog(await asyncio.gather(*map(listed, specs))).offers

    async def approve_entry(self, entry: Entry, *, by: str) -> None:
        """A person says yes to a server as it is written."""
        approval = Approval(what=subject(entry), content_hash=entry.digest, by=by, at=datetime.now(UTC))
        await self.store.write(lambda tx: tx.approve(approval))

    async def approve_tools(self, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str) -> None:
        """A person says yes to tools as they are described now."""
        now = datetime.now(UTC)
        await self.store.write(lambda tx: pin(tx, spec, fingerprints, by=by, at=now))

    def _context(self, opening: Opening) -> tuple[SessionContext, Workspace | None]:
        cwd = Path(opening.cwd)
        if not cwd.is_absolute() or not cwd.is_dir():
            raise HoldfastError(codes.BAD_ARGUMENT, f"{str(cwd)!r} is not the absolute path of a folder.")
        folder = str(cwd.resolve())
        workspace = self._workspace(opening, folder)
        parent = opening.parent
        trust = lowest(
            self.settings.trust_ceiling,
            opening.trust or Trust.DIRECT,
            workspace.trust if workspace is not None else Trust.DIRECT,
            parent.trust_level if parent is not None else Trust.DIRECT,
        )
        context = SessionContext(
            session_id=new_session_id(),
            trust_level=trust,
            workspace_id=workspace.slug if workspace is not None else "",
            cwd=folder,
            roots=(folder, *(str(Path(root).resolve()) for root in opening.roots)),
            user_id=parent.user_id if parent is not None else opening.user_id,
            parent_session_id=parent.session_id if parent is not None else None,
        )
        return context, workspace

    def _workspace(self, opening: Opening, folder: str) -> Workspace | None:
        if opening.parent is not None:
            slug = opening.parent.workspace_id
            return self.registry.get(slug) if slug else None
        if not opening.workspace:
            return self.registry.find(folder)
        workspace = self.registry.find(opening.workspace)
        if workspace is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {opening.workspace[:80]!r}.")
        return workspace

    async def _screen(self, spec: ServerSpec, tools: Sequence[Tool]) -> Sifted:
        """Offer what is as it was when the server was first used, or approved since."""
        trusted = (Source.HOST, Source.USER) if self.settings.servers.pin_tools == "project" else ()
        if spec.source is Source.BUILTIN or spec.source in trusted:
            return await in_turns(sifting(tools, None))
        approvals = await self.store.read(lambda reads: reads.approvals(of_tools(spec)))
        pinned = pins_of(spec, approvals)
        sifted = await in_turns(sifting(tools, pinned))
        if pinned is None:
            await self.approve_tools(spec, sifted.fingerprints, by=FIRST_USE)
        return sifted

    def _session_of(self, scope: Scope) -> Session:
        session = self._sessions.get(scope.home)
        if session is None:
            raise HoldfastError(codes.SCOPE_CLOSED, "This code belongs to no open session of this host.")
        return session

    def _tools_changed(self, spec: ServerSpec, scope: Scope | None) -> None:
        for session in [*self._sessions.values()]:
            if scope is None or session.scope is scope.home:
                session.tools_changed(spec.name)

    async def _close_all(self) -> None:
        closing = [self.close_session(session, "the host was closed") for session in self._sessions.values()]
        for failure in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(failure, Exception):  # the others are closed all the same
                log.error("session not closed properly", exc_info=failure)
        await self.links.close()

    def _mask(self, loaded: Loaded, resolution: Resolution) -> Mask:
        """What must not be written down: what servers are given under telling names, and what this process has."""
        given = [secret for server in resolution.servers for secret in secrets_of(server)]
        return Mask.of([*loaded.secrets, *given, *secrets_in(self._ground.environ)])


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something while the block runs; what is not done at its end is left."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        for failure in await asyncio.gather(task, return_exceptions=True):
            if isinstance(failure, HoldfastError):
                log.error("work beside the sessions failed", extra={"reason": failure.message})
            elif isinstance(failure, Exception):
                log.error("work beside the sessions failed", exc_info=failure)


def _anchor(store: Store) -> Anchor:
    return FileAnchor.beside(store.path) if isinstance(store, SqliteStore) else MemoryAnchor()


def _terms(settings: Settings) -> Terms:
    links = settings.links
    return Terms(
        limits=settings.wire,
        connect_seconds=links.connect_seconds,
        list_seconds=links.list_seconds,
        call_seconds=links.call_seconds,
    )
