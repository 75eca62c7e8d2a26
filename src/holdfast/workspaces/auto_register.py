"""Register a folder that a client names, where the operator allows it (`workspaces.auto_register`)."""

import logging
from pathlib import Path

from holdfast.model.real_path import real_path
from holdfast.model.workspace import Workspace
from holdfast.settings import Settings
from holdfast.workspaces.registry import Registry

log = logging.getLogger(__name__)

MAX_REGISTERED = 100
"""No folder is registered automatically once this many workspaces lie below the folders of `workspaces.auto_register`."""


def register_if_allowed(registry: Registry, path: str, settings: Settings) -> Workspace | None:
    """Register the folder as a sandboxed workspace.

    None if it is not an existing folder below an allowed one, or is hidden, contains the user's home or overlaps with
    Holdfast's own folders. Raise if it overlaps with a workspace, or if there are too many.
    """
    parents = [
        Path(real_path(str(Path(parent).expanduser()))) for parent in settings.workspaces.auto_register
    ]
    try:
        folder = Path(real_path(path))
    except (OSError, ValueError):
        return None
    above = [parent for parent in parents if folder.is_relative_to(parent) and folder != parent]
    if ".." in Path(path).parts or not above or not folder.is_dir() or _is_private(folder, above, settings):
        return None
    workspace = registry.add_below(folder, parents, at_most=MAX_REGISTERED)
    log.warning(
        "a client's folder was registered as a sandboxed workspace",
        extra={"workspace": workspace.slug, "path": workspace.path},
    )
    return workspace


def _is_private(folder: Path, above: list[Path], settings: Settings) -> bool:
    own = (settings.data_dir, settings.file.parent, settings.servers.user_file.parent)
    resolved = [Path(real_path(str(path.absolute()))) for path in own]
    return (
        any(part.startswith(".") for parent in above for part in folder.relative_to(parent).parts)
        or Path(real_path(str(Path.home()))).is_relative_to(folder)
        or any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in resolved)
    )
