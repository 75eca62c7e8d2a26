"""The reader threads. Each has its own connection, so that reads block neither writes nor the event loop."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import clock
from holdfast.store.sqlite.database import Database, ImmutableConnection, connect_readonly, has_changed
from holdfast.store.sqlite.errors import translate_errors
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.work_item import WorkItem, awaited_item, send_results

_INTERRUPT_SECONDS = 0.1


class Readers:
    """A pool of reader threads, started on demand."""

    def __init__(
        self,
        path: Path,
        count: int = 2,
        now: Callable[[], int] = clock.now,
        connect: Callable[[Path], Database] = connect_readonly,
    ) -> None:
        self._path = path
        self._connect = connect
        self._connections: set[sqlite3.Connection] = set()
        """The open connections, which `stop` may interrupt."""
        self._now = now
        self._count = count
        self._queue: SimpleQueue[WorkItem | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[SqlReadTx], Any]) -> Any:
        item, result = awaited_item(work)
        with self._lock:
            if self._closed:
                raise HoldfastError(codes.STORE_CLOSED, f"The store '{self._path}' is closed.")
            if len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name="holdfast-store-reader", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._queue.put(item)
        return await result

    async def stop(self, *, interrupt: bool = False) -> None:
        """Finish pending reads, or interrupt them, and end the threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        ended: list[asyncio.Future[Any]] = []
        for _ in self._threads:
            item, future = awaited_item(lambda _: None)
            self._queue.put(item)
            self._queue.put(None)
            ended.append(future)
        for future in ended:
            while interrupt and not future.done():
                self._interrupt()
                # An interrupt between two statements has no effect, so it is repeated.
                await asyncio.wait([future], timeout=_INTERRUPT_SECONDS)
            await asyncio.wait([future])
            future.exception()  # retrieved, because this item may have been interrupted, too
        for thread in self._threads:
            thread.join()

    def _interrupt(self) -> None:
        with self._lock:
            for db in self._connections:
                db.interrupt()

    def _track(self, db: Database) -> Database:
        if isinstance(db, sqlite3.Connection):
            with self._lock:
                self._connections.add(db)
        return db

    def _close(self, db: Database) -> None:
        if isinstance(db, sqlite3.Connection):
            with self._lock:
                self._connections.discard(db)
        db.close()

    def _run(self) -> None:
        db: Database | None = None
        try:
            while (item := self._queue.get()) is not None:
                try:
                    with translate_errors(self._path, reading=True):
                        db = db or self._track(self._connect(self._path))
                        item.result = self._read(db, item.work)
                except BaseException as error:
                    item.error = error
                if isinstance(db, ImmutableConnection):  # the file may change before the next read
                    self._close(db)
                    db = None
                send_results([item])
        finally:
            if db is not None:
                self._close(db)

    def _read(self, db: Database, work: Callable[[SqlReadTx], Any]) -> Any:
        try:
            result = self._read_snapshot(db, work)
        except Exception:
            if not has_changed(db, self._path):
                raise
        else:
            if not has_changed(db, self._path):
                return result
        # Another process wrote to the file, so its disk has space again: open it normally.
        with closing(connect_readonly(self._path)) as again:
            return self._read_snapshot(again, work)

    def _read_snapshot(self, db: Database, work: Callable[[SqlReadTx], Any]) -> Any:
        db.execute("BEGIN")
        try:
            return work(SqlReadTx(db, self._now))
        finally:
            if db.in_transaction:  # some errors end the transaction
                db.execute("ROLLBACK")
