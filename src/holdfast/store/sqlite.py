"""The store in an SQLite file: one thread writes, others read, and a commit is on the disk when it is told."""

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
    connect_to_look,
    connect_to_read,
    has_log,
    passes,
    told,
)
from holdfast.store.lease import ended
from holdfast.store.readers import Readers
from holdfast.store.schema import check_version, migrate, sections
from holdfast.store.store import AfterCommit, Reads, Store, Tx
from holdfast.store.writer import Writer

log = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[Path, Synchronous], Database]


class SqliteStore(Store):
    """Several processes may have one file open; each session is written by the one that holds it."""

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
        """Run a function in a transaction of its own; when this returns, what it wrote is durable."""
        return await self._writer.run(work)

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Run a function that reads, beside the writing and off the event loop."""
        return await self._readers.run(work)

    def owe(self, work: Callable[[Tx], object], then: Callable[[], object] | None = None) -> None:
        """Write what could not be written, on a full disk say, before all else that is written once there is space."""
        self._writer.owe(work, then)

    @property
    def owes(self) -> int:
        """How much is owed."""
        return self._writer.owes

    async def let_go(self, session_id: SessionId) -> None:
        """Let go of a session, as soon as that can be written; the end of this process does so at the latest."""
        try:
            await super().let_go(session_id)
        except HoldfastError as error:
            log.warning("session not let go yet", extra={"session": session_id, "reason": error.message})
            if passes(error):
                self.owe(lambda tx: tx.let_go(session_id))

    def after_commit(self, chore: AfterCommit) -> None:
        """From now on, run this after every commit."""
        self._writer.after_commit(chore)

    async def close(self) -> None:
        """Finish what was asked for, let go of every session, and of the files."""
        await self._readers.stop()
        await self._writer.stop()
        ended(self._holder)

    def _open(self) -> Database:
        return open_database(self.path, self._synchronous, self._connect, self._schema)


def open_database(
    path: Path, synchronous: Synchronous, connect: Connect = connect, schema: tuple[str, ...] | None = None
) -> Database:
    """Open a store's file to write to it, made new or brought forward where needed."""
    steps = schema or sections()
    with told(path):
        refuse_what_is_not_ours(path, len(steps))
        db = connect(path, synchronous)
        try:
            migrate(db, str(path), steps)
        except BaseException:
            db.close()
            raise
        return db


def refuse_what_is_not_ours(path: Path, known: int) -> None:
    """Look at a file that exists without changing it: a newer or a foreign one is left alone."""
    if path.is_dir():
        raise HoldfastError(codes.STORE_UNREADABLE, f"'{path}' is a folder, not a store.")
    if not path.exists() or not path.stat().st_size:
        return
    db = connect_to_read(path) if has_log(path) else connect_to_look(path)
    try:
        check_version(db, str(path), known)
    finally:
        db.close()
