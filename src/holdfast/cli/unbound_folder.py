"""The error for a folder whose file `.holdfast/workspace.toml` names a workspace that the folder is not bound to."""

import shlex
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.workspaces.bindings import find_announcement_problem, read_announcement


def raise_if_unbound(folder: str) -> None:
    """Raise if the file `.holdfast/workspace.toml`, here or in a folder above, is invalid or names a workspace.

    Call this only for a folder that belongs to no workspace.
    """
    if problem := find_announcement_problem(Path(folder)):
        raise HoldfastError(
            codes.MISSING_WORKSPACE, problem, hint="Correct the file, or give the name of the workspace."
        )
    if (announced := read_announcement(Path(folder))) is not None:
        raise HoldfastError(
            codes.MISSING_WORKSPACE,
            f"{announced.folder} names the workspace {announced.workspace!r}, but does not belong to it yet.",
            hint=f"To accept this: {shlex.join(['holdfast', 'workspaces', 'bind', announced.folder])}",
        )
