"""The files and folders that this process executes and imports: its interpreter, its modules and libraries.

A program that can change one of these files can run code with the host's rights, now or at the next start. The paths are
looked up once, when this module is imported, before any confined server runs.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.model.mounts import is_within
from holdfast.model.real_path import StepBudget, TooMuchWorkError, follow_links, real_path

SYSTEM_FOLDERS = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"),
    *("/nix", "/gnu/store", "/snap", "/run/current-system", "/run/wrappers"),
    *("/opt/homebrew", "/home/linuxbrew/.linuxbrew", "/Applications"),
)
"""Folders of the system and of installed programs. They are never roots, so no confined server can put a program there."""
_MAX_STEPS = 100_000  # above the most that the kernel follows: 40 links of 2,048 names


def resolve_with_links(paths: Iterable[Path]) -> tuple[str, ...]:
    """Each path's real path, the links on the way to it, and the folders that it enters and leaves with `..`.

    A change to one of these can lead the path elsewhere.
    """
    resolved: dict[str, None] = {}
    for path in map(str, (path.absolute() for path in paths)):
        try:
            followed = follow_links(path, StepBudget(_MAX_STEPS))
        except TooMuchWorkError:
            resolved[path] = None
            continue
        resolved[followed.real or path] = None
        resolved.update(dict.fromkeys(followed.passed))
    return tuple(resolved)


def system_path() -> str:
    """A `PATH` with only those folders that can never be a root. The host looks there for the programs that it executes.

    The full `PATH` may contain the environment of a project, where a confined server could put a program named `bwrap`.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders: dict[str, None] = {}
    for entry in entries:
        with suppress(OSError):  # a folder of a project may have become a symlink loop
            if entry.startswith("/") and _is_system_folder(real := real_path(entry)):
                folders[real] = None
    return os.pathsep.join(folders)


def _is_system_folder(folder: str) -> bool:
    return any(is_within(folder, system) for system in SYSTEM_FOLDERS)


def _find_own_code() -> tuple[str, ...]:
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    paths = [
        *(str(Path(__file__).parents[1]), sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix),
        *(entry or "." for entry in sys.path),  # an empty entry is the current folder
        *(folder for folder in libraries if folder),
    ]
    return resolve_with_links(Path(_without_parent_steps(path)) for path in paths)


def _without_parent_steps(path: str) -> str:
    """The absolute path without `..`, if both lead to the same file; else the path unchanged.

    So `/tmp/../srv/python` counts as `/srv/python`, and `/tmp` need not be guarded.
    """
    path = str(Path(path).absolute())
    normal = os.path.normpath(path)
    return normal if os.path.realpath(normal) == os.path.realpath(path) else path


OWN_PYTHON = os.path.realpath(sys.executable)
OWN_CODE = _find_own_code()
"""The files and folders that this process executes and imports, and the links to them. No confined server may change them."""
