"""A store for commands that only look: nothing is made and nothing is changed, so that it may be on any disk."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.cli.place import database
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import connect_to_read, told
from holdfast.store.memory import MemoryStore
from holdfast.store.query import SearchQuery
from holdfast.store.readers import Readers
from holdfast.store.rows import Hit, Page
from holdfast.store.schema import sections
from holdfast.store.sqlite import SqliteStore, refuse_what_is_not_ours
from holdfast.store.store import AfterCommit, Reads, Store, Tx

T = TypeVar("T")


def with_reading(path: Path | None, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run something that looks at what is kept."""
    file = database(path)

    async def run() -> T:
        async with opened_to_read(file, named=path is not None) as store:
            return await work(store)

    return asyncio.run(run())


def opened_to_read(file: Path, *, named: bool = False) -> AbstractAsyncContextManager[Store]:
    """The store in this file; where none was made yet, an empty one, unless the file was `named`."""
    with told(file, reads=True):
        if named and not file.is_file():
            raise HoldfastError(
                codes.STORE_UNREADABLE, f"There is no store at '{file}': nothing was recorded there yet."
            )
        if not file.exists() or (file.is_file() and not file.stat().st_size):
            return MemoryStore()
        known = len(sections())
        refuse_what_is_not_ours(file, known)
        with closing(connect_to_read(file)) as db:
            is_older = db.execute("PRAGMA user_version").fetchone()[0] < known
    return SqliteStore(file) if is_older else _reading(file)  # an older one is brought forward first


class ReadStore(Store):
    """Reads, and refuses to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = Readers(path)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Refused."""
        raise HoldfastError(codes.STORE_READ_ONLY, f"'{self._path}' was opened to be read only.")

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Run a function that reads."""
        return await self._readers.run(work)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """The messages and titles that have the words; on a disk that cannot be written to, as far as they are indexed."""
        if query.cursor is None:
            # What is wrong with the file, the reading tells.
            with suppress(HoldfastError, sqlite3.Error):
                async with SqliteStore(self._path) as store:
                    await store.write(lambda tx: tx.index())
        return await self.read(lambda reads: reads.search(query))

    def after_commit(self, chore: AfterCommit) -> None:
        """Nothing is committed here."""

    async def close(self) -> None:
        """Let go of the file."""
        await self._readers.stop()


@asynccontextmanager
async def _reading(file: Path) -> AsyncIterator[Store]:
    store = ReadStore(file)
    try:
        yield store
    finally:
        await store.close()
