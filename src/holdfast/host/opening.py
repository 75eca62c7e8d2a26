"""Opening sessions: a new one, a stored one, or one that is already live."""

import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.agent.agent import Agent
from holdfast.agent.model.config import make_config
from holdfast.agent.model.failures import unknown_model
from holdfast.agent.model.model_agent import ModelAgent, Models
from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.connect.server_log import ServerLogs
from holdfast.host.admission import Admission, Admitted, SessionPlan
from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.join import check_join, lower_mode_for
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import OpenOptions, narrow_options
from holdfast.host.opening_timer import OpeningTimer
from holdfast.host.secret_files import SecretFiles
from holdfast.host.server_config import AppServers
from holdfast.host.session_folders import resolve_path
from holdfast.host.session_log_mask import MASK_THREADS, SessionLogMask
from holdfast.host.session_storage import Acquired, SessionStorage
from holdfast.host.stored_agents import agents_to_store, missing_agents, resume_options
from holdfast.host.stored_restrictions import restrictions_to_store, with_stored_restrictions
from holdfast.host.stored_servers import had_only_own_servers, missing_servers, servers_to_store
from holdfast.host.tool_cache import ToolCache
from holdfast.masking.mask import Mask
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model import codes
from holdfast.model.budget_limits import NO_LIMITS
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.permission import DoorKind, Mode, lowest_mode
from holdfast.model.resolution import Resolution
from holdfast.model.trust import lowest_trust
from holdfast.model.visible_text import display_path
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.permission import limits_to_store, stored_mode, stored_tools
from holdfast.session.permission_rules import limit_mode
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.server_deps import ServerDeps
from holdfast.session.session import Session
from holdfast.session.session_config import SessionConfig
from holdfast.store.store import Tx
from holdfast.store.types import Hold, NewSession, SessionChange, StoredSession
from holdfast.tracing import Tracer
from holdfast.wire.loop_throttle import Throttles


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Opens the sessions of one host."""

    admission: Admission
    agent_definitions: AgentDefinitions
    storage: SessionStorage
    links: LinkPool
    live: LiveSessions
    connect_options: ConnectOptions
    argument_checker: ArgumentChecker
    agent: Agent | None
    """Answers the prompts of sessions without an agent of their own. None: they have a model, or their user calls the tools."""
    models: Models
    obtained: ObtainedSecrets
    secret_files: SecretFiles
    server_logs: ServerLogs
    tool_cache: ToolCache
    app_servers: AppServers
    """The servers that the application passed to `Host`."""
    host_opened_at: datetime
    """When the host was opened. What its application had in memory before is lost."""
    max_megabytes: int
    """How much one session may store; 0: no limit."""
    permission_wait: float
    """How many seconds a question waits for a door that can answer it."""
    server_wait_seconds: float
    """How long a turn waits for servers that are still starting, if a message of another session starts the turn."""
    can_spawn: Callable[[Session, CatalogTool], bool]
    """Whether the agent of a session may start another one with this tool. If not, it does not see the tool."""
    max_sub_agents: int
    """How many sub-agents may run at a time, below one root session."""
    tracer: Tracer | None = None
    """Traces the sessions; None if tracing is off."""
    throttles: Throttles = field(default_factory=Throttles)
    """The throttles of the sessions' quota owners."""

    async def open(self, options: OpenOptions) -> Session:
        """Open a new session. Returns while its servers are starting."""
        self._check_model(options)
        if options.agent_name:
            folder = await run_with_file_timeout(resolve_path, "cwd", str(options.cwd), path=str(options.cwd))
            definition = await self.agent_definitions.require(options.agent_name, folder)
            options = narrow_options(options, definition)
        timer = OpeningTimer()
        plan = await self.admission.plan(options)
        timer.end("plan")
        return await self._open_new(replace(plan, timer=timer))

    async def reopen(self, stored: StoredSession, options: OpenOptions) -> Session:
        """Open a stored session, or join it if it is already open. A turn that a crash interrupted is ended first."""
        self._check_model(options)
        options = await resume_options(options, stored, self.agent_definitions)
        options = with_stored_restrictions(options, stored.settings)
        timer = OpeningTimer()
        plan = replace(await self.admission.plan(options), timer=timer)
        timer.end("plan")
        session_id = stored.context.session_id
        check_same_folder(stored, plan)
        async with self.live.lock(session_id):
            await self.live.wait_closed(session_id)
            if (live := self.live.find(session_id)) is not None:
                return await _join(live, self.live.options_of(live), plan)
            return await self._reopen(stored, plan)

    def _check_model(self, options: OpenOptions) -> None:
        """Raise if an application names a model that no provider can have. Users of other front ends are told at the first prompt, and can type /model."""
        name, is_application = options.model, options.opened_by == DoorKind.PYTHON
        has_provider = ":" in name or name == "test" or bool(self.models.settings.base_url)
        if is_application and name and not has_provider and options.agent is None and self.agent is None:
            reason = unknown_model(make_config(self.models.settings, name)).message
            raise HoldfastError(codes.BAD_ARGUMENT, reason)

    async def _open_new(self, plan: SessionPlan) -> Session:
        """Store a new session, and start it. If it cannot be started, delete it."""
        context, options = plan.context, plan.options
        admitted = await plan.admit()
        plan.timer.end("admit")
        mask = admitted.mask
        title, tags = mask.mask_known(options.title), tuple(map(mask.mask_known, options.tags))
        mode, door = options.mode or Mode.ASK, _door_kind(options)
        new = NewSession(
            context=context,
            title=title,
            tags=tags,
            source=options.opened_by,
            settings={
                **limits_to_store(_mode_to_store(mode, door, plan), options.tools, door),
                **agents_to_store(options),
                **servers_to_store(options),
                **restrictions_to_store(options),
                **({"model": options.model} if options.model else {}),
            },
        )

        storage = self.storage if options.keep else self.storage.ephemeral()
        opening_events = storage.opening_events(context, admitted.resolution, mask, is_new=True)

        def create(tx: Tx) -> Acquired:
            tx.create(new)
            hold = tx.acquire(context.session_id)
            return Acquired(hold, stored_seq=opening_events.write(tx, hold))

        acquired = await storage.acquire(create, _delete_new)
        plan.timer.end("store")
        try:
            config = self._config(plan, mode, has_title=bool(title))
            session = await self._make_session(plan, storage, acquired.hold, admitted, config)
            return await self._start(session, options, opening_events, stored_seq=acquired.stored_seq)
        except BaseException:
            await run_to_completion(storage.roll_back(lambda tx: _delete_new(tx, acquired.hold)))
            raise

    async def _reopen(self, stored: StoredSession, plan: SessionPlan) -> Session:
        """Acquire a stored session, and start it with at most the rights that it had."""
        if not plan.options.keep:
            raise HoldfastError(codes.BAD_ARGUMENT, "A stored session is always kept: `keep` must be true.")
        stored_context, storage = stored.context, self.storage

        def acquire(tx: Tx) -> Acquired:
            hold = tx.acquire(stored_context.session_id)
            storage.audit.end_and_record_interrupted(tx, hold, stored_context)
            return Acquired(hold)

        hold = (await storage.acquire(acquire, lambda tx, hold: tx.release(hold))).hold
        try:
            plan.timer.end("store")
            # Read again: now that this process holds the session, no other can change it.
            current = await storage.store.session(stored_context.session_id) or stored
            context = replace(
                plan.context,
                session_id=stored_context.session_id,
                trust_level=lowest_trust(plan.context.trust_level, current.context.trust_level),
                parent_session_id=stored_context.parent_session_id,
            )
            if missing := missing_agents(current.settings, plan.options):
                raise HoldfastError(
                    codes.SESSION_HELD,
                    f"The session got the agent {missing[0]!r} while it was being opened.",
                    hint="Open it again.",
                )
            tools = tuple(dict.fromkeys((*stored_tools(current.settings), *plan.options.tools)))
            only_these = plan.options.only_these or had_only_own_servers(current.settings)
            plan = replace(
                plan,
                context=context,
                options=replace(plan.options, tools=tools, only_these=only_these),
                not_given=missing_servers(current.settings, plan.options),
            )
            admitted = await plan.admit()
            plan.timer.end("admit")
            # The mode and the model: the stored ones, unless others are given. The mode is never higher than the stored one.
            last_mode = lowest_mode(
                stored_mode(current.settings, _door_kind(plan.options)), await self._mode_above(context)
            )
            mode = lowest_mode(last_mode, plan.options.mode or last_mode)
            if not plan.options.model:
                stored_model = str(current.settings.get("model", ""))
                plan = replace(plan, options=replace(plan.options, model=stored_model))
            config = self._config(plan, mode, has_title=bool(current.title))
            # Store what is different now.
            settings = {
                **current.settings,
                **agents_to_store(plan.options),
                **servers_to_store(plan.options, current.settings),
            }
            if plan.options.model:
                settings["model"] = plan.options.model
            if mode is not last_mode:
                settings |= {**limits_to_store(mode, tools), "mode": mode}
            if settings != current.settings:
                await storage.store.write(lambda tx: tx.change(hold, SessionChange(settings=settings)))
            # Find out which servers have lost their state.
            session_id = stored_context.session_id
            earlier_use = await storage.store.read(
                lambda tx: _EarlierUse(tx.used_servers(session_id), tx.stored_bytes(session_id))
            )
            if current.updated >= self.host_opened_at:
                # The application still has the toolboxes that the session used.
                given = plan.options.app_servers
                kept_toolboxes = given.kept_toolboxes | (
                    self.app_servers.kept_toolboxes - given.entries.keys()
                )
                earlier_use = replace(earlier_use, lost_servers=earlier_use.lost_servers - kept_toolboxes)
        except BaseException:
            await run_to_completion(storage.store.release(hold))
            raise
        opening_events = storage.opening_events(context, admitted.resolution, admitted.mask, is_new=False)
        session = await self._make_session(plan, storage, hold, admitted, config, earlier_use)
        return await self._start(session, plan.options, opening_events)

    async def _mode_above(self, context: SessionContext) -> Mode:
        """The highest mode that the sessions above this one (its parent, and so on) allow, whether they are open or only stored."""
        mode, above = Mode.AUTO, context.parent_session_id
        while above is not None:
            if (live := self.live.find(above)) is not None:
                return lowest_mode(mode, live.permission.mode)
            stored = await self.storage.store.session(above)
            if stored is None:  # deleted or never stored: its mode is not known
                return lowest_mode(mode, Mode.ASK)
            mode = lowest_mode(mode, stored_mode(stored.settings, DoorKind.PYTHON))
            above = stored.context.parent_session_id
        return mode

    async def _start(
        self,
        session: Session,
        options: OpenOptions,
        opening_events: OpeningEvents,
        *,
        stored_seq: int | None = None,
    ) -> Session:
        """Make the session live, attach its first door, and start its servers.

        `stored_seq` is the number of the last opening event if these are stored already, as for a new session.
        """
        self.live.add(session, options)
        if options.opened_by == DoorKind.PYTHON:
            session.permission.how_to_answer = (
                "In Python, give the session `ask`, a function that answers: ask=lambda question: True."
            )
            session.scope.capability_advice = "In Python, give the session the function that answers: `elicit` for elicitation, `sample` for sampling."
            if stored_seq is not None:  # a new session: one that is reopened cannot get a higher mode
                session.permission.how_to_stop_asking = (
                    'To make all calls without asking, give permission="auto".'
                )
                session.permission.how_to_choose_mode = (
                    'In Python, the mode is the option `permission`: permission="auto".'
                )
        session.begin_use(options.door, _door_kind(options))
        try:
            await session.open(opening_events, stored_seq=stored_seq)
        except BaseException:
            await session.close()
            raise
        return session

    def _config(self, plan: SessionPlan, mode: Mode, *, has_title: bool) -> SessionConfig:
        return SessionConfig(
            agent=plan.options.agent or self.agent or self._model_agent(plan),
            mode=limit_mode(mode, _door_kind(plan.options), plan.rules),
            rules=plan.rules,
            permission_wait=self.permission_wait,
            server_wait_seconds=self.server_wait_seconds,
            has_title=has_title,
            parent=plan.options.parent,
            definition=plan.options.definition,
            budget=NO_LIMITS.lowest(*(definition.budget for definition in plan.options.limiting_definitions)),
            max_sub_agents=self.max_sub_agents,
            can_spawn=self.can_spawn,
        )

    def _model_agent(self, plan: SessionPlan) -> Agent:
        workspace_model = plan.workspace.model if plan.workspace is not None else None
        name = plan.options.model or workspace_model or self.models.settings.name
        agent = ModelAgent(self.models, name)
        if plan.options.opened_by == DoorKind.PYTHON:
            agent.how_to_choose = "`model=` in Python, or with the setting model.name"
        return agent

    async def _make_session(
        self,
        plan: SessionPlan,
        storage: SessionStorage,
        hold: Hold,
        admitted: Admitted,
        config: SessionConfig,
        earlier_use: "_EarlierUse | None" = None,
    ) -> Session:
        """Make the session object, with the resources that are released when the session is closed."""
        context = plan.context
        async with AsyncExitStack() as resources:
            # Removed last: until then, the session cannot be opened again.
            resources.callback(self.live.remove, context.session_id)
            throttle = self.throttles.of(context.payer)
            record = Record(
                context,
                hold,
                storage.store,
                storage.audit,
                admitted.mask,
                admitted.question_mask,
                throttle=throttle,
            )
            earlier_use = earlier_use or _EarlierUse()
            record.limit_storage(self.max_megabytes, earlier_use.stored_bytes)
            resources.push_async_callback(storage.release, record)
            resources.callback(self.obtained.forget_session, context.session_id)
            log_mask = SessionLogMask(context.session_id)
            resources.push_async_callback(log_mask.remove_all)
            await log_mask.add(admitted.mask, admitted.question_mask)

            async def resolve_again(context: SessionContext) -> Resolution:
                """Admit the session again. The new secrets are masked before any server starts."""
                current_plan = plan
                if plan.options.relay is not None:
                    # An MCP client keeps its session open for long: the workspace may have changed.
                    current_plan = await plan.admission.plan(plan.options)
                admitted_again = await replace(current_plan, context=context, is_open=True).admit()
                await log_mask.add(admitted_again.mask, admitted_again.question_mask)
                record.set_masks(*await MASK_THREADS.run(_merge_masks, record, admitted_again))
                return admitted_again.resolution

            deps = ServerDeps(
                links=self.links,
                options=self.connect_options,
                arguments=self.argument_checker,
                resolve=resolve_again,
                recall=lambda spec: self.tool_cache.recall(spec, plan),
                screen=lambda spec, tools, throttle: self.tool_cache.screen(
                    spec, tools, plan, record.mask, throttle
                ),
                read_log=self.server_logs.read,
                mask_secret_files=self.secret_files.mask_changed,
                stage_seconds=plan.timer.seconds,
                tracer=self.tracer,
                describe_missing=lambda tool: plan.admission.describe_missing_builtin(tool, plan),
            )
            _check_parent(plan)
            services = {**self.app_servers.services, **plan.options.app_servers.services}
            scope = Scope(context, used_before=earlier_use.lost_servers, services=services, throttle=throttle)
            scope.relay, scope.keeps_logs = plan.options.relay, plan.options.keep_logs
            scope.is_stored = plan.options.keep
            return Session(scope, admitted.resolution, record, deps, config, resources.pop_all())


@dataclass(frozen=True, slots=True)
class _EarlierUse:
    """What a session used before it was opened again."""

    lost_servers: frozenset[str] = frozenset()
    """The servers whose state is lost."""
    stored_bytes: int = 0


def _check_parent(plan: SessionPlan) -> None:
    """Raise if the parent session was closed, or got a lower trust, while its child session was being opened."""
    parent, context = plan.options.parent, plan.context
    if parent is None:
        return
    trust = parent.context.trust_level
    if parent.is_closing or lowest_trust(trust, context.trust_level) is not context.trust_level:
        raise HoldfastError(
            codes.SCOPE_CLOSED,
            f"The session {parent.context.session_id}, in which this run was to start, was closed or got a lower trust.",
            hint="If that session is still open, start the run again.",
        )


def _mode_to_store(mode: Mode, door: DoorKind, plan: SessionPlan) -> Mode:
    """The mode to store with a new session: never `auto` if the rules, which may change, do not allow it now."""
    return mode if limit_mode(mode, door, plan.rules) is Mode.AUTO else lowest_mode(mode, Mode.ASK)


def _delete_new(tx: Tx, hold: Hold) -> None:
    """Delete a session that could not be opened. Its hold may already have been released."""
    lease = tx.lease(hold.session_id)
    is_held = lease is not None and lease.epoch == hold.epoch
    tx.delete(hold if is_held else tx.acquire(hold.session_id))


def _door_kind(options: OpenOptions) -> DoorKind:
    try:
        return DoorKind(options.opened_by)
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"`opened_by` must be one of {', '.join(DoorKind)}, not {options.opened_by!r}.",
        ) from None


def check_same_folder(stored: StoredSession, plan: SessionPlan) -> None:
    """Raise BAD_ARGUMENT unless the session was opened in the folder of the plan."""
    folder, asked = stored.context.cwd, plan.context.cwd
    if folder != asked:
        move = shlex.join(["holdfast", "sessions", "move", stored.context.session_id, asked])
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The session was opened in {display_path(folder)}, not in {display_path(asked)}. To move it: {move}",
            hint=f"Open it in {display_path(folder)}, or move it: {move}",
            cwd=folder,
        )


async def _join(session: Session, opened_with: OpenOptions, plan: SessionPlan) -> Session:
    """Join a live session; raise an error if it is not as requested. It keeps its servers; its mode may be lowered."""
    check_join(session, trust=plan.context.trust_level, roots=plan.context.roots)
    if any(group not in opened_with.tools for group in plan.options.tools):
        raise HoldfastError(
            codes.SESSION_HELD,
            "The session is open with other tools than were requested.",
            hint="Leave `tools` out, or close the session where it is open and open it again.",
            session_id=session.context.session_id,
        )
    if any(name not in opened_with.app_servers.entries for name in plan.options.app_servers.entries):
        raise HoldfastError(
            codes.SESSION_HELD,
            "The session is open with other servers than were given.",
            hint="Leave `servers` out, or close the session where it is open and open it again.",
            session_id=session.context.session_id,
        )
    kind = _door_kind(plan.options)
    await lower_mode_for(session, kind, plan.rules, plan.options.mode)
    session.begin_use(plan.options.door, kind)
    return session


def _merge_masks(record: Record, admitted: Admitted) -> tuple[Mask, Mask]:
    """The session's masks, with the secrets of a later admission added. The earlier secrets may still occur."""
    return record.mask.plus(admitted.mask), record.masks.questions.plus(admitted.question_mask)
