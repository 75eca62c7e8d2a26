"""The store in an SQLite file: one thread writes, others read, and acknowledged writes are on the disk."""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store import clock
from holdfast.store.database import (
    Database,
    Synchronous,
    connect,
    connect_immutable,
    connect_readonly,
    has_wal,
)
from holdfast.store.errors import is_transient, translate_errors
from holdfast.store.lease import mark_closed
from holdfast.store.readers import Readers
from holdfast.store.schema import check_version, migrate, migrations
from holdfast.store.store import AfterCommit, ReadTx, Store, Tx
from holdfast.store.writer import Writer

log = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[Path, Synchronous], Database]


class SqliteStore(Store):
    """Several processes may open one file. While one holds a session's lease, no other can write to the session."""

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = Synchronous.FULL,
        now: Callable[[], int] = clock.now,
        connect: Connect = connect,
        schema: tuple[str, ...] | None = None,
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._connect = connect
        self._schema = schema
        self._holder = secrets.token_hex(8)
        self._writer = Writer(self._open, path=str(path), holder=self._holder, now=now)
        self._readers = Readers(path)

    async def __aenter__(self) -> "SqliteStore":
        await self._writer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a function in a write transaction. When this returns, its writes are durable."""
        return await self._writer.run(work)

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        """Run a function in a read transaction, in another thread. Writes do not block it."""
        return await self._readers.run(work)

    def defer(self, work: Callable[[Tx], object], on_done: Callable[[], object] | None = None) -> None:
        """Repeat a write that failed, as on a full disk, before any other write; then call `on_done`."""
        self._writer.defer(work, on_done)

    @property
    def deferred_writes(self) -> int:
        """The number of deferred writes that are waiting."""
        return self._writer.deferred_writes

    async def release(self, session_id: SessionId) -> None:
        """Release the session's lease. On a full disk the release is deferred; the lease expires when this process ends."""
        try:
            await super().release(session_id)
        except HoldfastError as error:
            log.warning("session not released yet", extra={"session": session_id, "reason": error.message})
            if is_transient(error):
                self.defer(lambda tx: tx.release(session_id))

    def after_commit(self, hook: AfterCommit) -> None:
        """Run this hook after every commit from now on."""
        self._writer.after_commit(hook)

    async def close(self) -> None:
        """Finish pending reads and writes, release all leases and close the files."""
        await self._readers.stop()
        await self._writer.stop()
        mark_closed(self._holder)

    def _open(self) -> Database:
        return open_database(self.path, self._synchronous, self._connect, self._schema)


def open_database(
    path: Path, synchronous: Synchronous, connect: Connect = connect, schema: tuple[str, ...] | None = None
) -> Database:
    """Open a store's file for writing; create or migrate it if needed."""
    steps = schema or migrations()
    with translate_errors(path):
        check_compatible(path, len(steps))
        db = connect(path, synchronous)
        try:
            migrate(db, str(path), steps)
        except BaseException:
            db.close()
            raise
        return db


def check_compatible(path: Path, supported: int) -> None:
    """Refuse a file of a newer version or of another program, without changing it."""
    if path.is_dir():
        raise HoldfastError(codes.STORE_UNREADABLE, f"'{path}' is a folder, not a store.")
    if not path.exists() or not path.stat().st_size:
        return
    db = connect_readonly(path) if has_wal(path) else connect_immutable(path)
    try:
        check_version(db, str(path), supported)
    finally:
        db.close()
