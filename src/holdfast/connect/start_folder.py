"""The folder that a local server is started in. An empty folder keeps the server from loading code from a project."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.folder_tree import remove_tree
from holdfast.model.server import Stdio

_REMOVE_SECONDS = 60.0


@asynccontextmanager
async def start_folder(
    stdio: Stdio, *, session_folder: str, is_confined: bool, empty_folders: Path
) -> AsyncIterator[str]:
    """The folder that the entry names, the session's folder, or an empty one.

    An empty folder is made in `empty_folders` and removed on exit. A confined server gets `/` instead.
    """
    if not stdio.has_empty_folder:
        yield stdio.cwd if stdio.cwd.startswith("/") else session_folder
    elif is_confined:
        yield "/"  # in the sandbox: read-only, and only with the system's folders
    else:
        async with _empty_folder(empty_folders) as folder:
            yield folder


@asynccontextmanager
async def _empty_folder(parent: Path) -> AsyncIterator[str]:
    path = await run_with_file_timeout(_create, parent, path=str(parent))
    try:
        yield path
    finally:
        await run_with_file_timeout(_remove, path, path=path, seconds=_REMOVE_SECONDS)


def _create(parent: Path) -> str:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.mkdtemp(dir=parent)


def _remove(path: str) -> None:
    with suppress(OSError):
        remove_tree(path)
