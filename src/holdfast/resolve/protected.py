"""Holdfast's own files and folders. They decide what sessions may do, so no session may touch them."""

from collections.abc import Sequence
from pathlib import Path

from holdfast import settings as settings_module
from holdfast.sandbox.own_code import resolve_with_links
from holdfast.settings import Settings


def folders_hidden_from_sandboxes(settings: Settings) -> tuple[str, ...]:
    """The paths that must not be visible in a sandbox: the files that Holdfast obeys, their folders, and its data folder.

    All are resolved, and the symbolic links on the way to them are listed, too: a program that can change such a link
    can change where Holdfast keeps its data, or what it obeys.
    """
    # The operator's file is listed without its folder, which may contain other files that sessions work on.
    folders = (settings.file.parent, settings.servers.user_file.parent)
    return resolve_with_links((*_own_paths(settings), *folders))


def paths_closed_to_tools(settings: Settings) -> tuple[str, ...]:
    """The paths that no built-in tool may touch: the folders that only Holdfast uses, and its files elsewhere."""
    return _resolve_paths(*_own_paths(settings))


def is_protected(path: str, protected: Sequence[str]) -> bool:
    """Whether a resolved path is one of the protected paths or inside one."""
    return any(path == own or path.startswith(own.rstrip("/") + "/") for own in protected)


def _own_paths(settings: Settings) -> tuple[Path, ...]:
    config_folder = settings_module.default_file({}).parent
    servers = settings.servers
    return settings.data_dir, config_folder, settings.file, servers.user_file, servers.host_file


def _resolve_paths(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
