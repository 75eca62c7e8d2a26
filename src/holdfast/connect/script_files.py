"""Detects that a script in the command of a running server was changed."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from holdfast.model.server import ServerSpec, Source, Stdio

_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".pl", ".php", ".lua", ".jar")
_MAX_FILES = 4

Stamp = tuple[int, int, int]
"""The modification time in nanoseconds, the size and the inode of a file."""


@dataclass(frozen=True, slots=True)
class ScriptFiles:
    """The scripts that a server's command names, as they were when it was started."""

    stamps: tuple[tuple[str, Stamp], ...] = ()

    def first_changed(self) -> str:
        """The first file that has changed; empty if there is none. A missing file counts as unchanged, because an editor may be saving it."""
        for path, stamp in self.stamps:
            now = _stamp(path)
            if now is not None and now != stamp:
                return path
        return ""


def read_script_files(spec: ServerSpec, folder: str) -> ScriptFiles:
    """The scripts in the command of an unconfined server from the user's or the operator's list; else none."""
    stdio = spec.transport
    if (
        spec.source not in (Source.USER, Source.OPERATOR)
        or spec.confinement is not None
        or not isinstance(stdio, Stdio)
    ):
        return ScriptFiles()
    return scripts_in_command(stdio, folder)


def scripts_in_command(stdio: Stdio, folder: str) -> ScriptFiles:
    """The scripts in a command that is started for a session of this folder."""
    start = Path() if stdio.has_empty_folder else Path(folder, stdio.cwd)
    named = [start / word for word in (stdio.command, *stdio.args) if PurePath(word).suffix in _SUFFIXES]
    paths = [str(path) for path in named if path.is_absolute()][:_MAX_FILES]
    stamps = ((path, _stamp(path)) for path in paths)
    return ScriptFiles(tuple((path, stamp) for path, stamp in stamps if stamp is not None))


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - called often, and a Path takes longer
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
