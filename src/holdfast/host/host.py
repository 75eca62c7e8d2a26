"""The host: opens, finds and closes sessions."""

import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Never, NoReturn, Self, Unpack, cast

from holdfast import settings as settings_module
from holdfast.agent.agent import Agent
from holdfast.audit.chain import Verdict
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.login_store import LOGIN_FOLDER
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope, current_scope, enter_scope, require_scope
from holdfast.connect.server_log import ServerLogs
from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.approvals import Approvals
from holdfast.host.composition import HostConfig, HostParts, compose
from holdfast.host.join import OtherOwner
from holdfast.host.list_tools import list_tools
from holdfast.host.open_options import (
    OpenOptions,
    SessionOptions,
    inherit_options,
    parse_agent,
    parse_options,
    parse_reopen_options,
    unknown_option,
    with_stored_folders,
)
from holdfast.host.opening import check_same_folder
from holdfast.host.opening_block import OpeningBlock
from holdfast.host.packages import FetchedPackage, Packages
from holdfast.host.server_config import ServerConfigs, parse_servers
from holdfast.model import codes
from holdfast.model.async_block import async_block
from holdfast.model.check_loop import OwnLoop, running_loop
from holdfast.model.codes import Code
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.parse_text import bad_type, parse_text
from holdfast.model.permission import ToolPattern
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.resolution import Refusal, Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.model.visible_text import to_line
from holdfast.resolve.command_words import named_scripts
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session import Session
from holdfast.session.unmatched_patterns import UnmatchedPatterns
from holdfast.settings import Settings
from holdfast.store.lease import is_expired
from holdfast.store.store import Store
from holdfast.store.types import StoredSession
from holdfast.wire.call_arguments import Arguments
from holdfast.workspaces.registry import WORKSPACES_FOLDER, Registry

if TYPE_CHECKING:
    from holdfast.tracing import TracerProvider

log = logging.getLogger(__name__)

_USAGE = "async with Host(…) as host:"
_MAX_ID_LENGTH = 256
_MAX_REMEMBERED_REFUSALS = 1000
"""How many refusals are remembered, so that equal refusals of several sessions are logged once."""
_NO_SESSION = SessionContext(session_id=SessionId(""), trust_level=Trust.SANDBOXED)


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
        tracer_provider: "TracerProvider | None" = None,
        **unknown: Never,
    ) -> None:
        """All sessions get `servers` in addition to the configured ones. `agent` answers their prompts.

        By default, the settings are those of this machine, the store is in the data folder, and the model of the settings
        answers. Without a model, the user types commands that call tools. With `tracer_provider`, sessions are traced by
        this provider of OpenTelemetry, which the application shuts down itself.
        """
        if unknown:
            known = [name for name in inspect.signature(Host).parameters if name != "unknown"]
            raise unknown_option("Host", next(iter(unknown)), known)
        if settings is not None and not isinstance(cast("object", settings), Settings):
            raise bad_type("settings", "what holdfast.settings.load() returns", settings)
        if store is not None and not isinstance(cast("object", store), Store):
            raise bad_type("store", "an open store (async with open_store(…) as store)", store)
        if connect_options is not None and not isinstance(cast("object", connect_options), ConnectOptions):
            raise bad_type("connect_options", "ConnectOptions(…)", connect_options)
        if tracer_provider is not None and not hasattr(cast("object", tracer_provider), "get_tracer"):
            raise bad_type("tracer_provider", "a TracerProvider of OpenTelemetry", tracer_provider)
        self.settings = settings or settings_module.load()
        self.registry = Registry(self.settings.data_dir / WORKSPACES_FOLDER)
        self._app_servers = parse_servers(servers or {})
        self._given_store = store
        self._connect_options = connect_options or _connect_options(self.settings)
        self._agent = parse_agent(agent)
        self._tracer_provider = tracer_provider
        self._opened_by_run: set[Scope] = set()
        self._logged_refusals: set[Refusal] = set()
        self._composed: HostParts | None = None
        self._stack = AsyncExitStack()
        self._state: Literal["new", "open", "closed"] = "new"
        self._own_loop: OwnLoop | None = None

    def __repr__(self) -> str:
        return f"<Host {self._state}, data in {self.settings.data_dir}>"

    async def __aenter__(self) -> Self:
        _check_event_loop()
        if self._state != "new":
            raise HoldfastError(
                codes.HOST_NOT_OPEN, f"This host is {self._state}: a Host is entered once. Make another one."
            )
        config = HostConfig(
            settings=self.settings,
            registry=self.registry,
            app_servers=self._app_servers,
            store=self._given_store,
            connect_options=self._connect_options,
            agent=self._agent,
            tracer_provider=self._tracer_provider,
        )
        async with AsyncExitStack() as stack:
            self._composed = await compose(config, stack)
            self._stack = stack.pop_all()
        self._state = "open"
        self._own_loop = OwnLoop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own_loop is not None:
            if self._own_loop.was_opened_before_fork:
                return  # the process that opened the host closes it
            self._own_loop.check("host")
        self._state = "closed"
        await self._stack.aclose()

    if not TYPE_CHECKING:  # a type checker finds these mistakes by itself

        def __await__(self) -> NoReturn:
            raise TypeError(f"A Host cannot be awaited. Write: {_USAGE}")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"A Host is async. Write: {_USAGE} Without async: from holdfast.sync import Host")

        def __exit__(self, *error: object) -> None:
            """Never called. Python looks it up before it calls `__enter__`."""

    # Parts

    @property
    def _parts(self) -> HostParts:
        if self._composed is None:
            self._check_open()
            raise AssertionError("An open host has its parts.")
        return self._composed

    @property
    def store(self) -> Store:
        """The store of the sessions."""
        return self._parts.store

    @property
    def links(self) -> LinkPool:
        """The connections to the servers."""
        return self._parts.links

    @property
    def approvals(self) -> Approvals:
        """What people approved: servers of projects, and definitions of tools."""
        return self._parts.approvals

    @property
    def agent_definitions(self) -> AgentDefinitions:
        """The definitions of agents: the user's own, and those of projects."""
        return self._parts.agent_definitions

    @property
    def packages(self) -> Packages:
        """The packages of confined servers."""
        return self._parts.packages

    @property
    def server_logs(self) -> ServerLogs:
        """What servers wrote to standard error."""
        return self._parts.server_logs

    def _check_open(self) -> None:
        """Raise unless the host is open, in this event loop."""
        if self._state == "new":
            why = "It was not entered: use it inside `async with Host(…) as host:`."
        elif self._state == "closed":
            why = "Its `async with` block has ended. Make another Host."
        else:
            assert self._own_loop is not None
            self._own_loop.check("host")
            return
        raise HoldfastError(codes.HOST_NOT_OPEN, f"The host is not open. {why}")

    # Sessions

    @async_block("async with host.session(…) as session:")
    async def session(self, **options: Unpack[SessionOptions]) -> AsyncIterator[Session]:
        """Open a session for a block. Its servers are available (or refused) when the block begins, and closed when it ends.

        `SessionOptions` describes the options.
        """
        async with self._open_for_block(parse_options(options)) as session:
            yield session

    @async_block("async with host.run(…) as session:")
    async def run(
        self, *, isolate: bool = False, **options: Unpack[SessionOptions]
    ) -> AsyncIterator[Session]:
        """One run of an agent.

        Outside of a session, the run opens a session with these options, and closes it at the end. Inside a session, it
        uses that session, and closes the servers of lifetime `run` at the end. Inside another run, it joins that run and
        closes nothing. With `isolate`, it always opens and closes a session of its own, with its own servers. A session that is
        opened inside another one never gets more rights than that one. Options that are not given are those of the outer session,
        except for the title, the tags and the functions `ask`, `elicit`, `sample` and `on_event`.
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
        session = self._parts.live.find_by_scope(outer)
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
        """Open a session, log which servers were refused, and close the session at the end."""
        session = await self._open(options)
        try:
            await session.wait_ready_and_store()
            for refusal in session.refusals:
                # The application or the workspace left this server out, or an equal refusal has been logged.
                if refusal.stage is Stage.SELECT or refusal in self._logged_refusals:
                    continue
                if len(self._logged_refusals) >= _MAX_REMEMBERED_REFUSALS:
                    self._logged_refusals.clear()
                self._logged_refusals.add(refusal)
                # The message has the name and the reason, because an application's log may show no fields.
                extra = {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
                log.warning(
                    "server refused: %s: %s", to_line(refusal.server), to_line(refusal.reason), extra=extra
                )
            _warn_about_unmatched(session, options)
            with enter_scope(session.scope):
                yield session
        finally:
            await session.close()

    def _options_inside(self, outer: Scope, given: SessionOptions) -> OpenOptions:
        """The options of a session that a run opens inside another session. Raise unless the other session is open in this host."""
        parent = self._parts.live.find_by_scope(outer)
        if parent.is_closing:
            raise HoldfastError(
                codes.SCOPE_CLOSED,
                f"The session {parent.context.session_id} is being closed, so no run can start in it.",
            )
        return inherit_options(given, parent, self._parts.live.options_of(parent))

    def open(self, options: OpenOptions) -> OpeningBlock:
        """Open a new session: `await` it, which returns while its servers are starting, or use it in an `async with` block."""
        return OpeningBlock(self._open(options), "async with host.open(…) as session:")

    async def _open(self, options: OpenOptions) -> Session:
        self._check_open()
        _check_options(options)
        if options.relay is None:
            session = await self._parts.opener.open(options)
        else:
            # Read before the servers are resolved: a change in between is applied to the session later.
            config = await self._parts.config_watch.version(options.cwd)
            session = await self._parts.opener.open(options)
            self._parts.config_watch.follow(session, config)
        if options.on_event is not None:
            session.watch(options.on_event)
        return session

    def reopen(
        self, session_id: str, options: OpenOptions | None = None, **given: Unpack[SessionOptions]
    ) -> OpeningBlock:
        """Resume a stored session in its folder: `async with host.reopen(session_id) as session:`. If it is live in this host, join it.

        The options are those of `session`; front ends give `OpenOptions`. Without `cwd`, the folders are the stored ones. The
        `user_id` must be that of the session. The mode is the stored one, or a lower one that is given. `servers` that the
        session was opened with must be given again. At the end of the block, the session is closed, unless another caller
        still uses it. Without a block, `await` it, which returns while the servers are starting, and call `close`.
        """
        opening = self._reopen(session_id, options, given)
        return OpeningBlock(opening, "async with host.reopen(…) as session:")

    async def _reopen(self, session_id: str, options: OpenOptions | None, given: SessionOptions) -> Session:
        self._check_open()
        if options is None:
            options = parse_reopen_options(given)
        elif given:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"Give either `OpenOptions` or options by name, such as `{next(iter(given))}`, not both.",
            )
        _check_options(options)
        stored = await self.find_session(session_id, options.user_id)
        session = await self._parts.opener.reopen(stored, with_stored_folders(options, stored.context))
        if options.on_event is not None:
            session.watch(options.on_event, after=session.record.events.last)
        return session

    async def find_owner(self, session_id: str, options: OpenOptions) -> OtherOwner | None:
        """The other process that has a stored session open, or None. Checks the user and the folder, as `reopen` does."""
        stored = await self.find_session(session_id, options.user_id)
        lease, own = stored.lease, self.store.holder_id
        if lease is None or own in ("", lease.holder_id) or is_expired(lease, self.store.now()):
            return None
        plan = await self._parts.admission.plan(with_stored_folders(options, stored.context))
        check_same_folder(stored, plan)
        return OtherOwner(lease=lease, requested=plan.context)

    async def log_in(self, spec: ServerSpec, on_login_page: Callable[[str], None], seconds: float) -> None:
        """Let the user log in to a remote server, within this many seconds. All sessions use the login.

        `on_login_page` is called with the address of the login page.
        """
        from holdfast.connect.http.login import log_in

        self._check_open()
        folder, reachable = self.settings.data_dir / LOGIN_FOLDER, self.settings.servers.reachable
        await log_in(spec, folder=folder, on_login_page=on_login_page, reachable=reachable, seconds=seconds)

    def find_live(self, session_id: str) -> Session | None:
        """The session with this id, if it is open in this host."""
        self._check_open()
        return self._parts.live.find(session_id)

    async def find_session(self, session_id: str, user_id: str | None = None) -> StoredSession:
        """Find a stored session of this user. Another user's session gives the same error as one that does not exist."""
        self._check_open()
        session_id = parse_text("session_id", session_id)
        try:
            parsed_id = parse_session_id(session_id)
            stored = await self.store.session(parsed_id)
        except HoldfastError as error:
            if error.code is not codes.BAD_ID:
                raise
            parsed_id, stored = SessionId(""), None
        if stored is not None and stored.context.user_id == user_id:
            return stored
        # For a session of another user and for an unknown id, the same work is done, so that the duration does not tell them apart.
        reason = "it is another user's" if stored is not None else "there is none"
        context = SessionContext(session_id=parsed_id, trust_level=Trust.SANDBOXED, user_id=user_id)
        await run_to_completion(self.audit_denied(codes.UNKNOWN_SESSION, reason, context))
        raise HoldfastError(
            codes.UNKNOWN_SESSION,
            f"There is no session {session_id[:80]!r}.",
            session_id=session_id[:_MAX_ID_LENGTH],
        )

    async def audit_denied(self, code: Code, reason: str, context: SessionContext = _NO_SESSION) -> None:
        """Record that a request was refused. `reason` must not contain a secret."""
        at, outcome = self.store.now(), code.name
        record = make_record(AuditKind.DENIED, context, Subject(), at=at, outcome=outcome, reason=reason)
        await self._parts.audit.write(record)

    def mask_credential(self, used_for: object, secret: str) -> None:
        """Mask a secret that this process obtained, in all events, audit records and logs.

        `used_for` is any key that names its purpose. For each key, the number of secrets is limited.
        """
        self._parts.obtained.add_credentials(used_for, [secret])

    async def delete_session(self, session_id: str, user_id: str | None = None) -> None:
        """Delete a stored session of this user. Raises SESSION_HELD if it is open."""
        context = (await self.find_session(session_id, user_id)).context
        await self._parts.retention.delete(context.session_id)

    async def prune(self, older_than: timedelta) -> int:
        """Delete the stored sessions that were not used for this long. Their audit records are kept. Return how many."""
        self._check_open()
        if not isinstance(cast("object", older_than), timedelta) or older_than < timedelta(0):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "`older_than` must be a timedelta that is not negative: timedelta(days=7).",
            )
        return await self._parts.retention.delete_unused(older_than)

    async def verify_audit(self) -> Verdict:
        """Whether every record of the audit is as it was written, and none is missing."""
        self._check_open()
        return await self._parts.audit.verify()

    async def plan(self, options: OpenOptions) -> tuple[LoadedEntries, Resolution]:
        """The configured entries, and the servers that a session with these options would get. Opens no session."""
        self._check_open()
        return await (await self._parts.admission.plan(options)).preview()

    async def trust_of(self, options: OpenOptions) -> Trust:
        """The trust that a session with these options would have."""
        self._check_open()
        return (await self._parts.admission.plan(options)).context.trust_level

    async def program_paths(
        self, command: Sequence[str], folder: str, package: FetchedPackage | None = None
    ) -> tuple[str, ...]:
        """The paths outside of a project's folder that would be mounted for the program of a confined server with this command.

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
        return await self._parts.keeper.program_paths(spec)

    async def call(self, name: str, arguments: Arguments | None = None) -> ToolResult:
        """Call a tool of the session that this code runs in; raises NO_CONTEXT outside of a session."""
        self._check_open()
        return await self._parts.live.find_by_scope(require_scope()).call(name, arguments)

    async def tools(self, *, cwd: str | Path = "") -> tuple[CatalogTool, ...]:
        """The tools that a session in this folder would have. Starts the servers, lists their tools, and closes them."""
        self._check_open()
        plan = await self._parts.admission.plan(OpenOptions(cwd=cwd or Path.cwd()))
        scope = Scope(plan.context, services=self._app_servers.services)
        return await list_tools(plan, self._parts.connector, scope, self._connect_options.list_seconds)


def _warn_about_unmatched(session: Session, options: OpenOptions) -> None:
    """Log which of the application's patterns and names of tools match no tool: now, or when lazy servers have been started."""
    patterns = [pattern for group in options.tools for pattern in group]
    patterns += (
        ToolPattern(server=(spec.name,), tool=(name,))
        for spec in session.servers
        if spec.source is Source.APP and spec.tools.names is not None
        for name in spec.tools.names
    )
    if not patterns:
        return
    unmatched = UnmatchedPatterns(patterns)

    def check() -> None:
        left_out = [refusal.server for refusal in session.refusals if refusal.stage is Stage.SELECT]
        unmatched.check(session.listed_names, left_out)

    check()
    session.on_tools_listed(check)


def _check_options(options: object) -> None:
    if not isinstance(options, OpenOptions):
        raise bad_type("options", "OpenOptions(…)", options)


def _check_event_loop() -> None:
    """Raise if the application runs on another event loop than asyncio's."""
    if running_loop() is None:
        raise HoldfastError(
            codes.HOST_NOT_OPEN,
            "Holdfast runs on asyncio and does not support trio: start the application with asyncio.run(…), or with "
            "anyio.run(…, backend='asyncio').",
        )


def _connect_options(settings: Settings) -> ConnectOptions:
    links = settings.links
    return ConnectOptions(
        limits=settings.wire,
        connect_seconds=links.connect_seconds,
        connect_setting="links.connect_seconds",
        list_seconds=links.list_seconds,
        call_seconds=links.call_seconds,
    )
