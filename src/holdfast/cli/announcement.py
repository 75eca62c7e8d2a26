"""The error for a folder that names a workspace in `.holdfast/workspace.toml`, but does not belong to it."""

import shlex
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.workspaces.bindings import find_announcement_problem, read_announcement


def raise_for_announcement(folder: str) -> None:
    """Raise if the folder names a workspace in a file that is invalid, or that the user has not agreed to."""
    if problem := find_announcement_problem(Path(folder)):
        raise HoldfastError(codes.MISSING_WORKSPACE, problem, hint="Correct the file, or name the workspace.")
    if (announced := read_announcement(Path(folder))) is not None:
        raise HoldfastError(
            codes.MISSING_WORKSPACE,
            f"{announced.folder} names the workspace {announced.workspace!r}, but does not belong to it yet.",
            hint=f"Agree to it: {shlex.join(['holdfast', 'workspaces', 'bind', announced.folder])}",
        )
