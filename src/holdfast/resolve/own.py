"""What is Holdfast's own on this machine: it decides about sessions, so no session gets at it."""

from collections.abc import Sequence
from pathlib import Path

from holdfast import settings as settings_module
from holdfast.settings import Settings


def own_folders(settings: Settings) -> tuple[str, ...]:
    """The folders that no walls may enclose; links are followed, as walls are built of real paths."""
    return _real(settings.data_dir, settings.file.parent, settings.servers.user_file.parent)


def own_places(settings: Settings) -> tuple[str, ...]:
    """What no tool of ours may touch: our folders, and of a folder that is not ours alone, our files in it."""
    servers = settings.servers
    usual = settings_module.default_file({}).parent
    return _real(settings.data_dir, usual, settings.file, servers.user_file, servers.host_file)


def is_own(path: str, places: Sequence[str]) -> bool:
    """Whether a real path is one of the places, or in one."""
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _real(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
