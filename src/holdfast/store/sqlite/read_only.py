"""A store to read from, even on a full or read-only disk."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import clock
from holdfast.store.anchor import Anchor
from holdfast.store.clock import from_microseconds
from holdfast.store.query import SearchQuery
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.sqlite.maintenance import connect_indexed, connect_upgraded_copy
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.store import SqliteStore, needs_upgrade
from holdfast.store.store import AfterCommit, ReadTx, Store, Tx
from holdfast.store.types import Page, SearchHit

T = TypeVar("T")


class ReadOnlyStore(Store):
    """A store that callers cannot write to. A search first brings the file's search index up to date, if the disk allows that."""

    def __init__(self, path: Path, *, keep_unchanged: bool = False) -> None:
        """With `keep_unchanged`, a search does not write either. If the file must be upgraded or indexed, a copy is read."""
        self._path = path
        self._keep_unchanged = keep_unchanged
        self._searcher: Readers | None = None
        self._readers = (
            Readers(path, count=1, connect=connect_upgraded_copy)
            if keep_unchanged and needs_upgrade(path)
            else Readers(path)
        )

    @property
    def anchor(self) -> Anchor:
        return FileAnchor.for_database(self._path)

    def now(self) -> datetime:
        return from_microseconds(clock.now())

    async def write(
        self,
        work: Callable[[Tx], T],
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
    ) -> T:
        raise HoldfastError(
            codes.STORE_READ_ONLY, f"'{self._path}' is open for reading only. Nothing was changed."
        )

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        return await self._readers.run(work)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """Bring the search index up to date, then search."""
        if query.cursor is None and not self._keep_unchanged:
            # If the file is damaged, the search below reports it.
            with suppress(HoldfastError, sqlite3.Error):
                async with SqliteStore(self._path) as store:
                    await store.write(lambda tx: tx.index_messages())
        if self._keep_unchanged:
            self._searcher = self._searcher or Readers(self._path, count=1, connect=connect_indexed)
            return await self._searcher.run(lambda tx: tx.search(query))
        return await self.read(lambda tx: tx.search(query))

    def after_commit(self, hook: AfterCommit) -> None:
        """Do nothing, because nothing is ever committed."""

    async def close(self) -> None:
        """Interrupt reads that still run, and end the threads."""
        if self._searcher is not None:
            await self._searcher.stop(interrupt=True)
        await self._readers.stop(interrupt=True)
