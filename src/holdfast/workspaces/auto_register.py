"""Registers a folder that a client names, if the setting `workspaces.auto_register` allows it."""

import logging
import os
from pathlib import Path

from holdfast.model.real_path import StepBudget, real_path
from holdfast.model.workspace import Workspace
from holdfast.settings import Settings
from holdfast.workspaces.registry import Registry
from holdfast.workspaces.worktree import find_repository

log = logging.getLogger(__name__)

MAX_REGISTERED = 100
"""No folder is registered automatically once this many workspaces lie below the folders of `workspaces.auto_register`."""


def register_if_allowed(registry: Registry, path: str, settings: Settings) -> Workspace | None:
    """Register the folder as a sandboxed workspace. Returns None if the settings do not allow it.

    Raises if the folder overlaps with a workspace, or if there are too many workspaces.
    """
    if why_refused(path, settings) or not settings.workspaces.auto_register:
        return None
    folder, parents = Path(real_path(path)), _parents(settings)
    workspace = registry.add_below(_find_project(folder, parents, settings), parents, at_most=MAX_REGISTERED)
    log.warning(
        "a client's folder was registered as a sandboxed workspace",
        extra={"workspace": workspace.slug, "path": workspace.path},
    )
    return workspace


def why_refused(path: str, settings: Settings) -> str:
    """Say why the folder is not registered. Empty if it may be registered, or if the setting is empty."""
    if not settings.workspaces.auto_register:
        return ""
    try:
        folder = Path(real_path(path))
    except (OSError, ValueError):
        return "the path cannot be resolved"
    if ".." in Path(path).parts:
        return "the path contains '..'"
    return _why_not_allowed(folder, _parents(settings), settings)


def _parents(settings: Settings) -> list[Path]:
    return [Path(real_path(str(Path(parent).expanduser()))) for parent in settings.workspaces.auto_register]


def _why_not_allowed(folder: Path, parents: list[Path], settings: Settings) -> str:
    above = [parent for parent in parents if folder.is_relative_to(parent) and folder != parent]
    if not above:
        return (
            "it does not lie in a folder of workspaces.auto_register, or it is a link that leads out of one"
        )
    if not folder.is_dir():
        return "it is not an existing folder"
    if _is_private(folder, above, settings):
        return "it is hidden, contains your home folder, or overlaps with Holdfast's own folders"
    return ""


def _find_project(folder: Path, parents: list[Path], settings: Settings) -> Path:
    """Return the folder to register: the root of the git repository that contains the folder, else the folder itself.

    For a git worktree, return the repository that it belongs to, so that all of its worktrees are one workspace.
    """
    for root in (folder, *folder.parents):
        if _why_not_allowed(root, parents, settings):
            break
        if not os.path.lexists(root / ".git"):
            continue
        repository = find_repository(root, StepBudget())
        is_usable = repository is not None and not _why_not_allowed(repository, parents, settings)
        return repository if repository is not None and is_usable else root
    return folder


def _is_private(folder: Path, above: list[Path], settings: Settings) -> bool:
    """Return whether the folder is hidden below one of `above`, contains the home folder, or overlaps with Holdfast's own folders."""
    own = (settings.data_dir, settings.file.parent, settings.servers.user_file.parent)
    resolved = [Path(real_path(str(path.absolute()))) for path in own]
    return (
        any(part.startswith(".") for parent in above for part in folder.relative_to(parent).parts)
        or Path(real_path(str(Path.home()))).is_relative_to(folder)
        or any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in resolved)
    )
