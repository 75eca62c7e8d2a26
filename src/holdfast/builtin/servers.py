"""The servers that come with Holdfast. No other server can take their names."""

import sys
from collections.abc import Mapping

from holdfast.connect.inprocess import MakeService
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.server import FILES, InProcess, Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.inputs import BuiltinServer
from holdfast.resolve.protected import paths_closed_to_tools
from holdfast.settings import Settings
from holdfast.wire.mcp.server import Service

_ORIGIN = "Holdfast itself"


def builtin_servers(settings: Settings) -> tuple[BuiltinServer, ...]:
    """`files` for every session; `tasks` for direct sessions in a workspace."""
    files = ServerSpec(
        name=FILES,
        source=Source.BUILTIN,
        transport=InProcess(service=FILES),
        origin=_ORIGIN,
        trust=Trust.SANDBOXED,  # it only accesses the session's roots
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
    """The services of the servers that run in the host's process, by name."""

    def make_files(context: SessionContext, door: Door | None) -> Service:
        # Imported late: it takes 40 ms.
        from holdfast.builtin.files.file_locks import FileLocks
        from holdfast.builtin.files.tools import files_service

        locks = FileLocks(settings.data_dir / "locks")
        return files_service(context, door, locks, paths_closed_to_tools(settings), confined_folders)

    return {FILES: make_files}
