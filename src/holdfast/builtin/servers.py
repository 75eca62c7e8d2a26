"""The servers that come with Holdfast. No other server may have their names."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.builtin.self_limited_tools import SELF_LIMITED_SECONDS
from holdfast.builtin.shell.environment import without_keys_and_tokens
from holdfast.connect.in_process import MakeService
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.permission import PermissionRestriction
from holdfast.model.process import Confinement
from holdfast.model.server import FILES_SERVER, SHELL_SERVER, InProcess, ServerSpec, Source, Stdio
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.model.trust import Trust
from holdfast.resolve.inputs import BuiltinServer
from holdfast.resolve.protected_paths import paths_closed_to_tools, paths_hidden_from_sandboxes
from holdfast.resolve.server_environment import confined_environment, direct_environment
from holdfast.resolve.unconfined_paths import UnconfinedPathFinder
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.settings import Settings
from holdfast.wire.mcp.server import Service
from holdfast.wire.mcp.tools import Tool

if TYPE_CHECKING:
    from holdfast.builtin.agents.tools import Delegate
    from holdfast.builtin.plan.tools import PublishPlan
    from holdfast.builtin.shell.tools import ShellDeps
    from holdfast.builtin.team.interface import Team

STAGE_SERVER = "stage"
TASKS_SERVER = "tasks"
PLAN_SERVER = "plan"
TEAM_SERVER = "team"
AGENTS_SERVER = "agents"
AGENT_SERVERS = frozenset({SHELL_SERVER, PLAN_SERVER, TEAM_SERVER, AGENTS_SERVER, STAGE_SERVER})
"""The built-in servers for sessions with an agent. Editors and chats get them; applications get those that they name."""
_MORE_TOOLS = "\n\nAfter the first call, there are more tools: they read the page, click, fill in fields, check what a test expects."
_NEEDS_WORKSPACE = (
    "It needs a workspace. To register the session's folder as one, run there: holdfast workspaces add ."
)
_NEEDS_BROWSER = (
    "It needs Chromium or Chrome (install your system's package 'chromium', or correct the setting stage.browser), the setting"
    " stage.enabled and, in a sandboxed session, hosts in stage.hosts."
)
BUILTIN_ORIGIN = "Holdfast itself"
ALWAYS_ASKED = PermissionRestriction(ask=(parse_tool_pattern(f"{STAGE_SERVER}.attach"),))
"""Tools of built-in servers that need permission for every call, in every mode: `attach` uses a browser with the user's logins."""


def builtin_servers(settings: Settings) -> tuple[BuiltinServer, ...]:
    """Return the built-in servers: `files` for every session, `tasks` for sessions in a workspace, others on request."""
    files = ServerSpec(
        name=FILES_SERVER,
        source=Source.BUILTIN,
        transport=InProcess(service=FILES_SERVER),
        origin=BUILTIN_ORIGIN,
        min_trust=Trust.SANDBOXED,  # the lowest trust that may use it: it accesses only the session's roots
    )
    return (
        BuiltinServer(spec=files),
        BuiltinServer(
            spec=_in_process_spec(TASKS_SERVER), is_offered_to=_has_workspace, offered_if=_NEEDS_WORKSPACE
        ),
        BuiltinServer(
            spec=_stage_spec(settings),
            is_on_request=True,
            is_offered_to=partial(_may_use_stage, settings),
            offered_if=_NEEDS_BROWSER,
        ),
        BuiltinServer(
            spec=_in_process_spec(SHELL_SERVER, call_seconds=SELF_LIMITED_SECONDS), is_on_request=True
        ),
        BuiltinServer(spec=_in_process_spec(PLAN_SERVER), is_on_request=True),
        BuiltinServer(
            spec=_in_process_spec(AGENTS_SERVER, call_seconds=SELF_LIMITED_SECONDS), is_on_request=True
        ),
        BuiltinServer(
            spec=_in_process_spec(TEAM_SERVER),
            is_on_request=True,
            is_offered_to=_has_workspace,
            offered_if=_NEEDS_WORKSPACE,
        ),
    )


def _in_process_spec(name: str, *, call_seconds: float | None = None) -> ServerSpec:
    return ServerSpec(
        name=name,
        source=Source.BUILTIN,
        transport=InProcess(service=name),
        origin=BUILTIN_ORIGIN,
        min_trust=Trust.SANDBOXED,  # the session's context decides what it may access, not a call's arguments
        call_seconds=call_seconds,
    )


def _stage_spec(settings: Settings) -> ServerSpec:
    stage = settings.stage
    return ServerSpec(
        name=STAGE_SERVER,
        source=Source.BUILTIN,
        transport=Stdio(
            command=sys.executable,
            args=(
                "-P",
                "-m",
                "holdfast",
                "builtin",
                "stage",
                *(("--allow-eval",) if stage.allow_eval else ()),
            ),
            env={
                "HOLDFAST_DATA_DIR": str(settings.data_dir),
                "HOLDFAST_STAGE_BROWSER": stage.browser,
                "HOLDFAST_STAGE_HOSTS": ",".join(stage.hosts),
                "HOLDFAST_SERVERS_REACHABLE": ",".join(settings.servers.reachable),
                # The ports that running Holdfast processes have noted in the data folder are denied, too.
                "HOLDFAST_STAGE_DENIED_PORTS": str(settings.gateway.port),
                "HOLDFAST_STAGE_STARTED_BY_CALL": "1",  # a lazy server starts at the first call
            },
            cwd=".",  # uploads come from there, and downloads are saved there
        ),
        origin=BUILTIN_ORIGIN,
        min_trust=Trust.SANDBOXED,
        confines_what_it_runs=True,
        is_lazy=True,
    )


def known_tools(spec: ServerSpec, context: SessionContext, *, is_for_agent: bool) -> list[Tool] | None:
    """Return the tools of `stage`, whose process starts only at the first call; None for all other servers.

    An agent first gets only `open` and, in a direct session, `attach`. The other tools appear when the process starts, so that
    they cost no tokens if the agent does not browse.
    """
    if spec.source is not Source.BUILTIN or spec.name != STAGE_SERVER:
        return None
    if is_for_agent:
        return _first_tools(context)
    missing = {"attach"} if context.trust_level is Trust.SANDBOXED else set[str]()
    if not isinstance(spec.transport, Stdio) or "--allow-eval" not in spec.transport.args:
        missing.add("evaluate")
    return [tool for tool in _stage_tools() if tool.name not in missing]


def _first_tools(context: SessionContext) -> list[Tool]:
    tools = {tool.name: tool for tool in _stage_tools()}
    first = msgspec.structs.replace(tools["open"], description=f"{tools['open'].description}{_MORE_TOOLS}")
    return [first] if context.trust_level is Trust.SANDBOXED else [first, tools["attach"]]


@cache
def _stage_tools() -> list[Tool]:
    """Return what `stage` answers to `tools/list`. `scripts/stage` writes the file."""
    listed = Path(__file__).with_name("stage") / "tools.json"
    return msgspec.json.decode(listed.read_bytes(), type=list[Tool])


def _may_use_stage(settings: Settings, context: SessionContext) -> bool:
    if not settings.stage.enabled or (context.trust_level is Trust.SANDBOXED and not settings.stage.hosts):
        return False
    # Imported here, because sessions without `stage` do not need it.
    from holdfast.builtin.stage.find_browser import find_browser

    return find_browser(settings.stage.browser) is not None


def _has_workspace(context: SessionContext) -> bool:
    return bool(context.workspace_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinDeps:
    """What the servers in the host's process need from the host."""

    settings: Settings
    confined_folders: ConfinedFolders
    unconfined_paths: UnconfinedPathFinder
    keeper: Keeper
    environ: Mapping[str, str] = field(repr=False)
    publish_plan: "PublishPlan"
    team: "Team"
    delegate: "Delegate"


def in_process_services(deps: BuiltinDeps) -> Mapping[str, MakeService]:
    """Return the functions that make the servers which run in the host's process, by name."""
    settings = deps.settings

    # The tools are imported when a session needs them, so that they do not delay the start of a command.
    def make_files(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.files.file_locks import FileLocks
        from holdfast.builtin.files.tools import files_service

        locks = FileLocks(settings.data_dir / "locks")
        protected = paths_closed_to_tools(settings)
        find_unconfined = deps.unconfined_paths.finder_for_threads()
        return files_service(context, door, locks, protected, deps.confined_folders, find_unconfined)

    def make_shell(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.shell.tools import shell_service

        return shell_service(context, door, _shell_deps(deps))

    def make_plan(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.plan.tools import plan_service

        return plan_service(context, deps.publish_plan)

    def make_tasks(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.tasks.server import tasks_service

        return tasks_service(context, settings.data_dir)

    def make_team(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.team.tools import team_service

        return team_service(context, deps.team)

    def make_agents(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.agents.tools import agents_service

        return agents_service(context, deps.delegate)

    return {
        AGENTS_SERVER: make_agents,
        FILES_SERVER: make_files,
        SHELL_SERVER: make_shell,
        PLAN_SERVER: make_plan,
        TASKS_SERVER: make_tasks,
        TEAM_SERVER: make_team,
    }


def _shell_deps(deps: BuiltinDeps) -> "ShellDeps":
    from holdfast.builtin.shell.tools import ShellDeps

    settings = deps.settings

    async def confine(context: SessionContext) -> Confinement:
        roots = context.roots or (context.cwd,)
        unconfined = await deps.unconfined_paths.find()
        return Confinement(
            roots=roots,
            read_only=unconfined.read_only_roots(roots),
            executed=unconfined.programs_in(roots),
            protected=paths_hidden_from_sandboxes(settings),
        )

    return ShellDeps(
        keeper=deps.keeper,
        confined_folders=deps.confined_folders,
        confine=confine,
        direct_env=without_keys_and_tokens(
            direct_environment(deps.environ, settings.servers.pass_on), settings.model.api_key_env
        ),
        confined_env=confined_environment(deps.environ),
        protected=paths_closed_to_tools(settings),
    )
