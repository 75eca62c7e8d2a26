"""Holdfast's own files and folders. They decide what sessions may do, so no session may touch them."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast import settings as settings_module
from holdfast.settings import Settings

_MAX_STEPS = 1000  # links may form a loop


def folders_hidden_from_sandboxes(settings: Settings) -> tuple[str, ...]:
    """The paths that must not be visible in a sandbox: the resolved folders, and the symbolic links on the way to them.

    A program that can change such a link can change where Holdfast keeps its data.
    """
    paths = (settings.data_dir, settings.file.parent, settings.servers.user_file.parent)
    links = (link for path in paths for link in _links_in_path(path))
    return tuple(dict.fromkeys((*_resolve_paths(*paths), *links)))


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


def _links_in_path(path: Path) -> Iterator[str]:
    """The path of each symbolic link that is followed on the way to a path."""
    names = deque(path.absolute().parts[1:])
    here = Path("/")
    for _ in range(_MAX_STEPS):
        if not names:
            return
        name = names.popleft()
        step = here.parent if name == ".." else here / name
        if not step.is_symlink():
            here = step
            continue
        yield str(step)
        target = step.readlink()
        here = Path("/") if target.is_absolute() else here
        names.extendleft(reversed([part for part in target.parts if part != "/"]))


def _resolve_paths(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))
