"""Holdfast's own files and folders. They decide what sessions may do, so no session may touch them."""

from collections.abc import Sequence
from pathlib import Path

from holdfast import settings as settings_module
from holdfast.settings import Settings


def folders_hidden_from_sandboxes(settings: Settings) -> tuple[str, ...]:
    """The folders that no sandbox may show. Symlinks are resolved, because sandboxes mount real paths."""
    return _resolve_paths(settings.data_dir, settings.file.parent, settings.servers.user_file.parent)


def paths_closed_to_tools(settings: Settings) -> tuple[str, ...]:
    """The paths that no built-in tool may touch: the folders that only Holdfast uses, and its files elsewhere."""
    servers = settings.servers
    config_folder = settings_module.default_file({}).parent
    return _resolve_paths(
        settings.data_dir, config_folder, settings.file, servers.user_file, servers.host_file
    )


def is_protected(path: str, protected: Sequence[str]) -> bool:
    """Whether a resolved path is one of the protected paths or inside one."""
    return any(path == own or path.startswith(own.rstrip("/") + "/") for own in protected)


def _resolve_paths(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
