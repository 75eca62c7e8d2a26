"""The servers that come with Holdfast. No other server may have their names."""

import sys
from collections.abc import Mapping, Sequence

from holdfast.connect.inprocess import MakeService
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.server import FILES_SERVER, InProcess, Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.inputs import BuiltinServer
from holdfast.resolve.protected_paths import paths_closed_to_tools
from holdfast.settings import Settings
from holdfast.wire.mcp.server import Service

_ORIGIN = "Holdfast itself"


def builtin_servers(settings: Settings) -> tuple[BuiltinServer, ...]:
    """Return the built-in servers: `files` for every session, `tasks` for direct sessions in a workspace."""
    files = ServerSpec(
        name=FILES_SERVER,
        source=Source.BUILTIN,
        transport=InProcess(service=FILES_SERVER),
        origin=_ORIGIN,
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
        origin=_ORIGIN,
        lifetime=Lifetime.HOST,
    )
    return BuiltinServer(spec=files), BuiltinServer(spec=tasks, is_offered_to=_is_direct_in_workspace)


def _is_direct_in_workspace(context: SessionContext) -> bool:
    return bool(context.workspace_id) and context.trust_level is Trust.DIRECT


def in_process_services(settings: Settings, confined_folders: ConfinedFolders) -> Mapping[str, MakeService]:
    """Return the functions that make the servers which run in the host's process, by name."""

    def make_files(context: SessionContext, door: Door | None, read_only: Sequence[str]) -> Service:
        # Imported late: it takes 40 ms.
        from holdfast.builtin.files.file_locks import FileLocks
        from holdfast.builtin.files.tools import files_service

        locks = FileLocks(settings.data_dir / "locks")
        protected = paths_closed_to_tools(settings)
        return files_service(context, door, locks, protected, confined_folders, read_only)

    return {FILES_SERVER: make_files}
