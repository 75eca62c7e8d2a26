"""The files and folders that this process executes and imports: its interpreter, its modules, libraries and programs.

A program that can change one of them can run code with the host's rights, now or at the next start. They are looked up
once, when this module is imported, before any confined server runs.
"""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.model.mounts import is_within

SYSTEM_FOLDERS = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"),
    *("/nix", "/gnu/store", "/snap", "/run/current-system", "/run/wrappers"),
    *("/opt/homebrew", "/home/linuxbrew/.linuxbrew", "/Applications"),
)
"""Folders of the system and of installed programs. They are never roots, so no confined server can put a program there."""
_MAX_STEPS = 1000  # links may form a loop


def links_in_path(path: Path) -> Iterator[str]:
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


def resolve_with_links(paths: Iterable[Path]) -> tuple[str, ...]:
    """The real paths, and the symbolic links on the way to them. A program that can change such a link can redirect it."""
    found: dict[str, None] = {}
    for path in paths:
        found[str(path.resolve())] = None
        found.update(dict.fromkeys(links_in_path(path)))
    return tuple(found)


def system_path() -> str:
    """A `PATH` with only those folders that can never be a root. The host looks there for the programs that it executes.

    The full `PATH` may contain the environment of a project, where a confined server could put a program named `bwrap`.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = (os.path.realpath(folder) for folder in entries if os.path.isabs(folder))  # noqa: PTH117 - names, not paths yet
    return os.pathsep.join(
        dict.fromkeys(
            folder for folder in folders if any(is_within(folder, system) for system in SYSTEM_FOLDERS)
        )
    )


def _find_own_code() -> tuple[str, ...]:
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    paths = [
        *(str(Path(__file__).parents[1]), sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix),
        *(entry or "." for entry in sys.path),  # an empty entry is the current folder
        *(folder for folder in libraries if folder),
    ]
    return resolve_with_links(Path(path).absolute() for path in paths)


OWN_PYTHON = os.path.realpath(sys.executable)
OWN_CODE = _find_own_code()
"""Real paths, and the links on the way to them. Confined servers may read them, but never change them."""
