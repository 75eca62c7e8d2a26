"""Walk and remove folders that others may have filled: without recursion, with few open descriptors, and without following links."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MAX_DEPTH = 256  # levels of folders
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk_folders(folder: str | Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`: each folder, with the names of the folders and of the files in it. The caller may remove names of folders to leave them out.

    Raises OSError (ENAMETOOLONG) at a folder that lies deeper than `MAX_DEPTH`. In Python 3.11, `os.walk` would raise RecursionError.
    """
    pending = [(str(folder), 0)]
    while pending:
        path, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "its folders are nested too deeply", str(folder))
        folders: list[str] = []
        files: list[str] = []
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not entry.is_dir():  # a link to a folder is neither
                    files.append(entry.name)
        yield path, folders, files
        pending += [(f"{path}/{name}", depth + 1) for name in reversed(folders)]


def remove_tree(folder: str | Path) -> None:
    """Remove a folder and everything in it. Raises OSError if something cannot be removed. Blocks.

    Inner folders are moved to the top before they are removed, so that only two folders are open at a time.
    """
    try:
        top = os.open(folder, _OPEN_FOLDER)
    except FileNotFoundError:
        return
    try:
        pending = _remove_files(top)
        while pending:
            name = pending.pop()
            with suppress(FileNotFoundError):  # another process removes the same folder
                inner = os.open(name, _OPEN_FOLDER, dir_fd=top)
                try:
                    for child in _remove_files(inner):
                        moved = secrets.token_hex(16)
                        os.rename(child, moved, src_dir_fd=inner, dst_dir_fd=top)
                        pending.append(moved)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with suppress(FileNotFoundError):
        Path(folder).rmdir()


def _remove_files(folder: int) -> list[str]:
    """Remove everything in an open folder except its folders. Return the names of these folders."""
    with os.scandir(folder) as entries:
        kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in kinds:
        if not is_folder:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in kinds if is_folder]
