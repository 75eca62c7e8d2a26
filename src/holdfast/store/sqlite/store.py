"""The store in an SQLite file. One thread writes, and others read. When `write` returns, its writes are on the disk."""

import secrets
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self, TypeVar

from holdfast.store import clock
from holdfast.store.anchor import Anchor
from holdfast.store.clock import from_microseconds
from holdfast.store.lease import LEASE_SECONDS, mark_closed
from holdfast.store.owner import Owner, this_process
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.sqlite.database import Database, connect, connect_readonly
from holdfast.store.sqlite.errors import translate_errors
from holdfast.store.sqlite.maintenance import check_compatible
from holdfast.store.sqlite.prepare_upgrade import prepare_upgrade
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.schema import migrate, migrations, schema_version
from holdfast.store.sqlite.write_tx import Holder
from holdfast.store.sqlite.writer import Writer
from holdfast.store.store import AfterCommit, OnDone, ReadTx, Store, Tx

T = TypeVar("T")
Connect = Callable[[Path], Database]


class SqliteStore(Store):
    """A store in an SQLite file. Several processes may open it; each session is held by at most one of them."""

    def __init__(
        self,
        path: Path,
        *,
        lease_seconds: float = LEASE_SECONDS,
        owner: Owner | None = None,
        now: Callable[[], int] = clock.now,
        connect: Connect = connect,
        schema: tuple[str, ...] | None = None,
    ) -> None:
        """`now`, `connect` and `schema` (the SQL of every version) are replaced only in tests."""
        self.path = path
        self._anchor = FileAnchor.for_database(path)
        self._now = now
        self._connect = connect
        self._schema = schema
        self._holder = Holder(
            id=secrets.token_hex(8),
            owner=owner or this_process(),
            lease_duration=timedelta(seconds=lease_seconds),
        )
        self.holder_id = self._holder.id
        self._writer = Writer(self._open, path=str(path), holder=self._holder, now=now)
        self._readers = Readers(path, now=now)

    @property
    def anchor(self) -> Anchor:
        return self._anchor

    def now(self) -> datetime:
        return from_microseconds(self._now())

    async def __aenter__(self) -> Self:
        await self._writer.start()
        return self

    async def write(
        self,
        work: Callable[[Tx], T],
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
    ) -> T:
        return await self._writer.run(work, must_happen=must_happen, on_postponed_done=on_postponed_done)

    def submit(
        self, work: Callable[[Tx], T], on_done: OnDone, *, quota_owner: str = "", size: int = 0
    ) -> None:
        self._writer.submit(work, on_done, quota_owner=quota_owner, size=size)

    async def read(self, work: Callable[[ReadTx], T]) -> T:
        return await self._readers.run(work)

    @property
    def postponed_writes(self) -> int:
        return self._writer.postponed_writes

    def after_commit(self, hook: AfterCommit) -> None:
        self._writer.after_commit(hook)

    async def close(self) -> None:
        await self._readers.stop()
        await self._writer.stop()
        mark_closed(self._holder.id)

    def _open(self) -> Database:
        return open_database(self.path, self._connect, self._schema)


def open_database(path: Path, connect: Connect = connect, schema: tuple[str, ...] | None = None) -> Database:
    """Open a store's file for writing. Create it, or back it up and upgrade it, if needed."""
    steps = schema or migrations()
    with translate_errors(path):
        check_compatible(path, len(steps))
        db = connect(path)
        try:
            migrate(db, str(path), steps, lambda version: prepare_upgrade(path, version))
        except BaseException:
            db.close()
            raise
        return db


def is_empty(path: Path) -> bool:
    """Whether there is no store in this file yet."""
    with translate_errors(path, reading=True):
        return not path.exists() or (path.is_file() and not path.stat().st_size)


def needs_upgrade(path: Path) -> bool:
    """Whether an earlier version wrote this file. Raise if it cannot be read, or if a newer version wrote it."""
    supported = len(migrations())
    with translate_errors(path, reading=True):
        check_compatible(path, supported)
        with closing(connect_readonly(path)) as db:
            return schema_version(db) < supported
