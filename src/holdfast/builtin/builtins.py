"""Which servers Holdfast brings along: their names are theirs alone."""

import sys
from collections.abc import Mapping

from holdfast.connect.inprocess import MakeService
from holdfast.model.context import SessionContext
from holdfast.model.ports import Door
from holdfast.model.server import InProcess, Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.gather import Builtin
from holdfast.resolve.own import own_places
from holdfast.settings import Settings
from holdfast.wire.mcp.server import Service

FILES = "files"
_ORIGIN = "Holdfast itself"


def builtins(settings: Settings) -> tuple[Builtin, ...]:
    """All of them: files in every session, tasks in direct sessions of a workspace."""
    files = ServerSpec(
        name=FILES,
        source=Source.BUILTIN,
        transport=InProcess(service=FILES),
        origin=_ORIGIN,
        trust=Trust.SANDBOXED,  # it goes nowhere but to the session's roots
    )
    tasks = ServerSpec(
        name="tasks",
        source=Source.BUILTIN,
        # -P: the folder it is started in must not lend it modules.
        transport=Stdio(
            command=sys.executable,
            args=("-P", "-m", "holdfast", "builtin", "tasks"),
            env={"HOLDFAST_DATA_DIR": str(settings.data_dir)},
        ),
        origin=_ORIGIN,
        lifetime=Lifetime.HOST,
    )
    return Builtin(spec=files), Builtin(spec=tasks, fits=_is_at_home)


def _is_at_home(context: SessionContext) -> bool:
    return bool(context.workspace_id) and context.trust_level is Trust.DIRECT


def services(settings: Settings) -> Mapping[str, MakeService]:
    """What stands behind those that live in the host's process."""

    def make_files(context: SessionContext, door: Door | None) -> Service:
        from holdfast.builtin.files.files import files  # costs 40 ms, which the start need not wait for

        return files(context, door, own_places(settings))

    return {FILES: make_files}
