"""The composition root: makes all parts of a host, and gives each the parts that it needs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.agent.agent import Agent
from holdfast.agent.model.model_agent import Models
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.audit import Audit
from holdfast.builtin.servers import TEAM_SERVER, BuiltinDeps, builtin_servers, in_process_services
from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.connector import Connector
from holdfast.connect.http.login_store import LOGIN_FOLDER
from holdfast.connect.http.remote_connector import RemoteConnector
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.log_files import LOG_FOLDER
from holdfast.connect.server_log import ServerLogs
from holdfast.connect.warm_pool import WarmPool
from holdfast.host.admission import Admission
from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.approval_watch import ApprovalWatch
from holdfast.host.approvals import Approvals
from holdfast.host.config_watch import ConfigWatch
from holdfast.host.data_folder import DATABASE_FILE, KEYS_FOLDER, check_data_folder
from holdfast.host.delegation import Delegator
from holdfast.host.edit_approvals import revoke_edit_approvals_in_writable_roots
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.opening import Opener
from holdfast.host.packages import Packages
from holdfast.host.remote.listener import SessionListener
from holdfast.host.retention import Retention
from holdfast.host.secret_files import SecretFiles
from holdfast.host.server_config import AppServers
from holdfast.host.session_storage import SessionStorage
from holdfast.host.team import HostTeam
from holdfast.host.tool_cache import ToolCache
from holdfast.host.traces import open_tracer
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.changeable_roots import CHANGEABLE_ROOTS_FILE, ChangeableRoots
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.errors import HoldfastError
from holdfast.model.own_ports import own_ports
from holdfast.model.server import ServerSpec
from holdfast.resolve.inputs import ResolveInputs
from holdfast.resolve.unconfined_paths import UnconfinedPathFinder
from holdfast.sandbox.container.kept_containers import find_kept_containers
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import make_sandbox
from holdfast.session.session import Session
from holdfast.settings import Settings
from holdfast.store.open_store import open_store
from holdfast.store.store import Store
from holdfast.token.signer import Signer
from holdfast.workspaces.registry import Registry

if TYPE_CHECKING:
    from holdfast.tracing import TracerProvider

log = logging.getLogger(__name__)

EMPTY_FOLDERS = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """What the parts of a host are made from."""

    settings: Settings
    registry: Registry
    app_servers: AppServers
    store: Store | None
    """None: the database in the data folder."""
    connect_options: ConnectOptions
    agent: Agent | None
    """Answers the prompts of sessions without an agent of their own. None: a model, or the user calls the tools."""
    tracer_provider: "TracerProvider | None" = None
    """Traces the sessions. None: the settings decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """The parts of an open host."""

    store: Store
    audit: Audit
    obtained: ObtainedSecrets
    """The secrets that this process got while it was running."""
    approvals: Approvals
    agent_definitions: AgentDefinitions
    admission: Admission
    retention: Retention
    server_logs: ServerLogs
    keeper: Keeper
    packages: Packages
    connector: Connector
    links: LinkPool
    live: LiveSessions
    config_watch: ConfigWatch
    opener: Opener
    team: HostTeam


async def compose(config: HostConfig, stack: AsyncExitStack) -> HostParts:
    """Make and start all parts of a host. Leaving `stack` closes the sessions, then stops the parts in reverse order."""
    settings, app_servers = config.settings, config.app_servers
    # What the other parts share.
    live, confined_folders, changeable_roots = (
        LiveSessions(),
        ConfinedFolders(),
        ChangeableRoots(settings.data_dir / CHANGEABLE_ROOTS_FILE),
    )
    sandbox = make_sandbox(
        settings.sandbox.engine,
        settings.sandbox.image,
        # A store of the application's own does not tell which sessions of the data folder still exist.
        keep_in=settings.data_dir if settings.sandbox.keep and config.store is None else None,
        changeable_roots=changeable_roots,
    )
    inputs = ResolveInputs(
        settings=settings,
        builtins=builtin_servers(settings),
        app_servers=app_servers.entries,
        app_toolbox_names=app_servers.toolbox_names,
        sandbox=sandbox,
    )
    # The data folder: secrets, store, audit and logs.
    check_data_folder(settings.data_dir)
    # Exited last: what the store writes while it is closed must still be masked.
    obtained = stack.enter_context(ObtainedSecrets())
    secret_files = SecretFiles(settings, config.registry, obtained)
    await secret_files.read_changed()
    database = settings.data_dir / DATABASE_FILE
    store = config.store or await stack.enter_async_context(open_store(database))
    hasher = ArgumentHasher(settings.data_dir / KEYS_FOLDER)
    hasher.load()
    audit = Audit(store, keep_arguments=settings.audit.arguments, hash_arguments=hasher)
    approvals = Approvals(store, audit, pin_tools=settings.servers.pin_tools)
    agent_definitions = AgentDefinitions(settings, store, audit)
    server_logs = ServerLogs(settings.data_dir / LOG_FOLDER)
    await stack.enter_async_context(audit)
    containers = (
        find_kept_containers(settings.sandbox.engine, settings.data_dir) if config.store is None else None
    )
    retention = Retention(store, audit, server_logs, settings.data_dir, containers)
    await stack.enter_async_context(_in_background(retention.clean_up(settings.sessions.keep_days)))
    # The servers.
    keeper = await stack.enter_async_context(Keeper(sandbox))
    remote = await stack.enter_async_context(
        RemoteConnector(
            obtained=obtained,
            signer=Signer(settings.data_dir / KEYS_FOLDER),
            logins=settings.data_dir / LOGIN_FOLDER,
            reachable=settings.servers.reachable,
            own_ports=lambda: {settings.gateway.port, *own_ports(settings.data_dir)},
        )
    )
    unconfined_paths = UnconfinedPathFinder(
        settings, app_servers.entries, inputs.environ, store, inputs.last_good, changeable_roots
    )
    packages = Packages(settings, keeper, inputs.environ)

    async def prepare_confined(spec: ServerSpec) -> ServerSpec:
        spec = await unconfined_paths.add_read_only_paths(spec)
        return await packages.prepare(await revoke_edit_approvals_in_writable_roots(store, audit, spec))

    team, delegator = (
        HostTeam(live, store, settings.agents),
        Delegator(live, agent_definitions, settings.agents.max_depth),
    )
    services = in_process_services(
        BuiltinDeps(
            settings=settings,
            confined_folders=confined_folders,
            unconfined_paths=unconfined_paths,
            keeper=keeper,
            environ=inputs.environ,
            publish_plan=live.publish_plan,
            team=team,
            delegate=delegator.run,
        )
    )
    empty_folders = settings.data_dir / EMPTY_FOLDERS
    connector = Connector(
        keeper=keeper,
        warm_pool=await stack.enter_async_context(WarmPool(keeper, empty_folders)),
        confined_folders=confined_folders,
        remote=remote,
        options=config.connect_options,
        empty_folders=empty_folders,
        aliases=settings.aliases,
        on_tools_changed=live.refresh_tools,
        server_logs=server_logs,
        check_program=approvals.check_program_files,
        prepare_confined=prepare_confined,
        find_read_only=unconfined_paths.read_only_in,
        services=services,
    )
    tracer = await stack.enter_async_context(open_tracer(config.tracer_provider, settings.traces.otlp_url))
    models = Models(settings.model, tracer, settings.file)
    stack.push_async_callback(models.close)
    links = LinkPool(
        connector.open,
        max_links=settings.links.max_open,
        idle_seconds=settings.links.idle_seconds,
        shared_idle_seconds=settings.links.shared_idle_seconds,
        back_off=config.connect_options.back_off,
        aliases=settings.aliases,
    )

    # The sessions.
    def can_spawn(session: Session, tool: CatalogTool) -> bool:
        if tool.server.name == TEAM_SERVER:
            return team.can_create(session)
        return delegator.can_delegate(session)

    admission = Admission(settings, config.registry, inputs, store, approvals)
    opener = Opener(
        admission=admission,
        agent_definitions=agent_definitions,
        storage=SessionStorage(store, audit),
        links=links,
        live=live,
        connect_options=config.connect_options,
        argument_checker=ArgumentChecker(),
        agent=config.agent,
        models=models,
        obtained=obtained,
        secret_files=secret_files,
        server_logs=server_logs,
        tool_cache=ToolCache(approvals),
        app_servers=app_servers,
        host_opened_at=store.now(),
        max_megabytes=settings.sessions.max_megabytes,
        permission_wait=settings.permission.wait,
        server_wait_seconds=settings.links.wait_seconds,
        can_spawn=can_spawn,
        max_sub_agents=settings.agents.max_children,
        tracer=tracer,
    )
    # Set here because of a cycle: the opener gives sessions the tools that use `team` and `delegator`, which open sessions.
    team.opener = delegator.opener = opener
    # What runs in the background.
    watch = await ApprovalWatch(store, audit, links, confined_folders, unconfined_paths).start()
    approvals.on_change = watch.end_affected_servers
    await stack.enter_async_context(_in_background(watch.run()))
    config_watch = ConfigWatch(settings, admission, store, live)
    await stack.enter_async_context(_in_background(config_watch.run()))
    await stack.enter_async_context(_in_background(team.watch()))
    if store.holder_id:
        await stack.enter_async_context(SessionListener(settings.data_dir, store.holder_id, live.find))
    stack.push_async_callback(links.close)
    stack.push_async_callback(live.close_all, "the host was closed")
    return HostParts(
        store=store,
        audit=audit,
        obtained=obtained,
        approvals=approvals,
        agent_definitions=agent_definitions,
        admission=admission,
        retention=retention,
        server_logs=server_logs,
        keeper=keeper,
        packages=packages,
        connector=connector,
        links=links,
        live=live,
        config_watch=config_watch,
        opener=opener,
        team=team,
    )


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
