"""Find out whether source files in a folder were saved, deleted or added."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.model.folder_tree import walk_folders

_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".json", ".toml", ".rb", ".sh", ".go", ".rs")
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "venv", "build", "dist", "target", "site-packages"}
)
_MAX_FILES = 2000

FileStates = Mapping[str, tuple[int, int]]
"""The time of the last change (in ns) and the size of each file, by its path."""


def read_file_states(folder: Path) -> FileStates:
    """Read the time and size of each source file in a folder and its subfolders. Hidden and installed files are left out.

    After 2,000 files, the other folders are left out.
    """
    states: dict[str, tuple[int, int]] = {}
    with suppress(OSError):  # folders that are nested too deeply are left out
        for path, folders, names in walk_folders(folder):
            folders[:] = sorted(
                name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
            )
            for name in names:
                if name.endswith(_SUFFIXES):
                    with suppress(OSError):  # an editor may be replacing the file
                        status = Path(path, name).stat()
                        states[os.path.relpath(Path(path, name), folder)] = status.st_mtime_ns, status.st_size
            if len(states) > _MAX_FILES:
                break
    return states


def find_changed_file(before: FileStates, now: FileStates) -> str:
    """The path of a file that was added, saved or deleted; empty if there is none."""
    changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
    return min(changed, default="")
