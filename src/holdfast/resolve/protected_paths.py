"""The paths of Holdfast's own files and folders. They decide what sessions may do, so confined servers and built-in tools may not access them."""

from collections.abc import Sequence
from pathlib import Path

from holdfast import settings as settings_module
from holdfast.model.browsers_folder import browsers_folder
from holdfast.model.mounts import is_within
from holdfast.sandbox.own_code import resolve_with_links
from holdfast.settings import Settings


def paths_hidden_from_sandboxes(settings: Settings) -> tuple[str, ...]:
    """The paths that must not be visible in a sandbox.

    Holdfast's configuration files, the folders of those that belong to the user, Holdfast's data folder, and the folder of all
    sessions' browsers. Of each, the real path and the symbolic links on the way to it: a program that can change such a link can
    make Holdfast use other data or another configuration.
    """
    # The folder of the operator's file is not included: it may contain files that sessions work on.
    folders = (settings.file.parent, settings.servers.user_file.parent, browsers_folder())
    return resolve_with_links((*_holdfast_paths(settings), *folders))


def paths_closed_to_tools(settings: Settings) -> tuple[str, ...]:
    """The paths that no built-in tool may access: the folders that only Holdfast uses, and its files in other folders."""
    return _resolve_paths(*_holdfast_paths(settings))


def is_protected(path: str, protected: Sequence[str]) -> bool:
    """Whether a resolved path is one of the protected paths, or lies in one."""
    return any(is_within(path, other) for other in protected)


def _holdfast_paths(settings: Settings) -> tuple[Path, ...]:
    config_folder = settings_module.settings_file({}).parent
    servers = settings.servers
    return settings.data_dir, config_folder, settings.file, servers.user_file, servers.host_file


def _resolve_paths(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
