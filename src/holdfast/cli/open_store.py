"""Open the store for a command, to read or to change it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import settings
from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import Audit
from holdfast.cli.output import print_error
from holdfast.host.data_folder import check_data_folder
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import connect_readonly
from holdfast.store.errors import translate_errors
from holdfast.store.memory import MemoryStore
from holdfast.store.query import SearchQuery
from holdfast.store.readers import Readers
from holdfast.store.schema import migrations
from holdfast.store.sqlite import SqliteStore, check_compatible
from holdfast.store.store import AfterCommit, ReadTx, Store, Tx
from holdfast.store.types import Page, SearchHit

STORE_FILE = "holdfast.db"
EXIT_UNREADABLE = 3
"""The exit code of a command that could not read the store."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def path_option(command: F) -> F:
    """Add the option `--path`: the store's file, if it is not the one in `data_dir`."""
    return click.option(
        "--path",
        type=click.Path(path_type=Path),
        help="The store's file. Default: holdfast.db in `data_dir`.",
    )(command)


def store_file(path: Path | None) -> Path:
    """The store's file: `path`, or the one in the data directory."""
    if path is not None:
        if not path.name:
            raise HoldfastError(
                codes.STORE_UNREADABLE,
                f"'{path}' is a folder, not a store.",
                hint="Give the path of the store's file.",
            )
        return path
    file = settings.load().data_dir / STORE_FILE
    with translate_errors(file):
        check_data_dir(file.parent)
    return file


def check_data_dir(data_dir: Path) -> None:
    """Raise if the data directory, or a parent of it, exists and is not a folder."""
    existing = next((part for part in (data_dir, *data_dir.parents) if part.exists()), None)
    if existing is not None and not existing.is_dir():
        raise HoldfastError(
            codes.STORE_UNREADABLE,
            f"`data_dir` is '{data_dir}', and '{existing}' is not a folder.",
            hint="Set `data_dir` to the path of a folder.",
        )
    check_data_folder(data_dir)


@contextmanager
def exit_if_unreadable(code: int = EXIT_UNREADABLE) -> Iterator[None]:
    """Print the error and exit with this code if the store or the settings cannot be read."""
    try:
        yield
    except HoldfastError as error:
        if not error.code.name.startswith("STORE_") and error.code is not codes.BAD_SETTINGS:
            raise
        print_error(error)
        raise click.exceptions.Exit(code) from None


def run_writing(path: Path | None, work: Callable[[Store, Audit], Coroutine[Any, Any, T]]) -> T:
    """Run a function that changes the store."""
    file = store_file(path)
    if not file.is_file():
        raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{file}'.")

    async def run() -> T:
        async with SqliteStore(file) as store, Audit(store, FileAnchor.for_database(file)) as audit:
            return await work(store, audit)

    return asyncio.run(run())


def run_reading(path: Path | None, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run a function that only reads the store. Works on a full or read-only disk, too."""
    file = store_file(path)

    async def run() -> T:
        async with open_read_only(file, must_exist=path is not None) as store:
            return await work(store)

    return asyncio.run(run())


def open_read_only(file: Path, *, must_exist: bool = False) -> AbstractAsyncContextManager[Store]:
    """Open the store in this file for reading. A missing file counts as an empty store, unless it `must_exist`."""
    with translate_errors(file, reading=True):
        if must_exist and not file.is_file():
            raise HoldfastError(
                codes.STORE_UNREADABLE, f"There is no store at '{file}': nothing was recorded there yet."
            )
        if not file.exists() or (file.is_file() and not file.stat().st_size):
            return MemoryStore()
        known = len(migrations())
        check_compatible(file, known)
        with closing(connect_readonly(file)) as db:
            is_older = db.execute("PRAGMA user_version").fetchone()[0] < known
    return (
        SqliteStore(file) if is_older else _open_read_only_store(file)
    )  # SqliteStore migrates an older schema


class ReadOnlyStore(Store):
    """A store that can only be read. The only change it makes is to bring the search index up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = Readers(path)

    async def write(self, work: Callable[[Tx], T]) -> T:
        raise HoldfastError(codes.STORE_READ_ONLY, f"'{self._path}' is open for reading only.")

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        return await self._readers.run(work)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """Index the messages that are not indexed yet, if the disk allows it; then search."""
        if query.cursor is None:
            # If the file is damaged, the search below reports it.
            with suppress(HoldfastError, sqlite3.Error):
                async with SqliteStore(self._path) as store:
                    await store.write(lambda tx: tx.index_messages())
        return await self.read(lambda tx: tx.search(query))

    def after_commit(self, hook: AfterCommit) -> None:
        """Do nothing: nothing is ever committed."""

    async def close(self) -> None:
        await self._readers.stop()


@asynccontextmanager
async def _open_read_only_store(file: Path) -> AsyncIterator[Store]:
    store = ReadOnlyStore(file)
    try:
        yield store
    finally:
        await store.close()
