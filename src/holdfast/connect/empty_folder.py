"""An empty folder to start a server in, so that it finds no code of others there."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.model.file_access import access_files

_REMOVE_SECONDS = 60.0


@asynccontextmanager
async def empty_folder(parent: Path) -> AsyncIterator[str]:
    """Create a folder that only this user can access. On exit, remove it with all that was written there."""
    path = await access_files(_create, parent, path=str(parent))
    try:
        yield path
    finally:
        await access_files(_remove, path, path=path, seconds=_REMOVE_SECONDS)


def _create(parent: Path) -> str:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.mkdtemp(dir=parent)


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
