"""The servers that come with Holdfast. No other server may have their names."""

import sys
from collections.abc import Mapping
from functools import partial

from holdfast.connect.inprocess import MakeService
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.permission import PermissionRestriction, parse_tool_pattern
from holdfast.model.server import FILES_SERVER, InProcess, Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.executed_paths import ExecutedPaths
from holdfast.resolve.inputs import BuiltinServer
from holdfast.resolve.protected_paths import paths_closed_to_tools
from holdfast.settings import Settings
from holdfast.wire.mcp.server import Service

STAGE_SERVER = "stage"
BUILTIN_ORIGIN = "Holdfast itself"
ALWAYS_ASKED = PermissionRestriction(ask=(parse_tool_pattern(f"{STAGE_SERVER}.attach"),))
"""Tools of built-in servers that need permission for every call, in every mode: `attach` uses a browser with the user's logins."""


def builtin_servers(settings: Settings) -> tuple[BuiltinServer, ...]:
    """Return the built-in servers: `files` for every session, `tasks` for direct sessions in a workspace, `stage` if enabled."""
    files = ServerSpec(
        name=FILES_SERVER,
        source=Source.BUILTIN,
        transport=InProcess(service=FILES_SERVER),
        origin=BUILTIN_ORIGIN,
        min_trust=Trust.SANDBOXED,  # even sandboxed sessions may use it: it accesses only the session's roots
    )
    tasks = ServerSpec(
        name="tasks",
        source=Source.BUILTIN,
        # -P: do not import modules from the current folder.
        transport=Stdio(
            command=sys.executable,
            args=("-P", "-m", "holdfast", "builtin", "tasks"),
            env={"HOLDFAST_DATA_DIR": str(settings.data_dir)},
        ),
        origin=BUILTIN_ORIGIN,
        lifetime=Lifetime.HOST,
    )
    return (
        BuiltinServer(spec=files),
        BuiltinServer(spec=tasks, is_offered_to=_is_direct_in_workspace),
        BuiltinServer(spec=_stage(settings), is_offered_to=partial(_is_offered_stage, settings)),
    )


def _stage(settings: Settings) -> ServerSpec:
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
            },
            cwd=".",  # uploads come from there, and downloads are saved there
        ),
        origin=BUILTIN_ORIGIN,
        min_trust=Trust.SANDBOXED,
        confines_itself=True,
    )


def _is_offered_stage(settings: Settings, context: SessionContext) -> bool:
    if not settings.stage.enabled or (context.trust_level is Trust.SANDBOXED and not settings.stage.hosts):
        return False
    # Imported late: most hosts do not need it.
    from holdfast.builtin.stage.find_browser import find_browser

    return find_browser(settings.stage.browser) is not None


def _is_direct_in_workspace(context: SessionContext) -> bool:
    return bool(context.workspace_id) and context.trust_level is Trust.DIRECT


def in_process_services(
    settings: Settings, confined_folders: ConfinedFolders, executed: ExecutedPaths
) -> Mapping[str, MakeService]:
    """Return the functions that make the servers which run in the host's process, by name."""

    def make_files(context: SessionContext, door: Door | None) -> Service:
        # Imported late: it takes 40 ms.
        from holdfast.builtin.files.file_locks import FileLocks
        from holdfast.builtin.files.tools import files_service

        locks = FileLocks(settings.data_dir / "locks")
        protected = paths_closed_to_tools(settings)
        find_executed = executed.finder_for_threads()
        return files_service(context, door, locks, protected, confined_folders, find_executed)

    return {FILES_SERVER: make_files}
