"""The error for a folder that belongs to no workspace, although `.holdfast/workspace.toml` names one."""

import shlex
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.workspaces.bindings import find_announcement_problem, read_announcement


def raise_for_announcement(folder: str) -> None:
    """For a folder that belongs to no workspace: raise if its file names one, or is invalid."""
    if problem := find_announcement_problem(Path(folder)):
        raise HoldfastError(codes.MISSING_WORKSPACE, problem, hint="Correct the file, or name the workspace.")
    if (announced := read_announcement(Path(folder))) is not None:
        raise HoldfastError(
            codes.MISSING_WORKSPACE,
            f"{announced.folder} names the workspace {announced.workspace!r}, but does not belong to it yet.",
            hint=f"To accept this: {shlex.join(['holdfast', 'workspaces', 'bind', announced.folder])}",
        )
