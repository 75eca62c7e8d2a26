"""The writer thread: runs all waiting writes in one transaction, commits once, then wakes their callers."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from logging import getLogger
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.errors import is_transient
from holdfast.store.lease import RENEWALS
from holdfast.store.pending_event import settle_future
from holdfast.store.sqlite.database import Database, extend_wal
from holdfast.store.sqlite.errors import explain_sqlite_error
from holdfast.store.sqlite.work_item import WorkItem, awaited_item, send_results
from holdfast.store.sqlite.write_turns import WriteTurns
from holdfast.store.sqlite.write_tx import Holder, SqlTx
from holdfast.store.store import AfterCommit, OnDone
from holdfast.store.suspension import new_transaction_lock

log = getLogger(__name__)

Work = Callable[[SqlTx], Any]

# Postponed writes are committed in small batches, because the disk may have little space.
_MAX_POSTPONED_BATCH = 100
_RETRY_SECONDS = 1.0
_MIN_RENEW_SECONDS = 0.05
# A process that makes this many commits probably makes many more, so its WAL is extended in advance.
_COMMITS_BEFORE_EXTENDING = 100


class _ItemFailedError(Exception):
    """An item failed. `__cause__` is its error."""


class Writer:
    """Owns the writing connection."""

    def __init__(
        self, open_database: Callable[[], Database], *, path: str, holder: Holder, now: Callable[[], int]
    ) -> None:
        self._open_database = open_database
        self._path = path
        self._holder = holder
        self._now = now
        self._queue: SimpleQueue[WorkItem | None] = SimpleQueue()
        self._turns = WriteTurns(self._queue)
        self._last: WorkItem | None = None
        """The write that is made after all others, when the thread ends."""
        self._thread = threading.Thread(target=self._run, name="holdfast-store-writer", daemon=True)
        self._lock = threading.Lock()
        self._transaction_lock = new_transaction_lock()
        self._closed = False
        self._failure: HoldfastError | None = None
        """The error that every write raises after the disk has failed."""
        self._hooks: dict[AfterCommit, float | None] = {}
        """When to call each hook again (`time.monotonic`); None: after the next commit."""
        self._holds_leases = False
        self._postponed: list[WorkItem] = []
        """The writes with `must_happen` that have failed so far."""
        self._renew_seconds = max(_MIN_RENEW_SECONDS, holder.lease_duration.total_seconds() / RENEWALS)
        self._renew_at: float | None = None
        self._commits = 0
        self._is_wal_extended = False

    async def start(self) -> None:
        """Start the thread and open the file. Raises if the file cannot be opened."""
        first, opened = awaited_item(lambda _: None)
        self._queue.put(first)
        self._thread.start()
        try:
            await opened
        except BaseException:
            # End the thread: `stop` is not called after a failed start.
            with self._lock:
                self._closed = True
            self._queue.put(None)
            raise

    async def run(
        self, work: Work, *, must_happen: bool = False, on_postponed_done: Callable[[], object] | None = None
    ) -> Any:
        """Run a function in a transaction, and return its result when its writes are durable."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(
            work, partial(settle_future, result), must_happen=must_happen, on_postponed_done=on_postponed_done
        )
        return await result

    def submit(
        self,
        work: Work,
        on_done: OnDone,
        *,
        must_happen: bool = False,
        on_postponed_done: Callable[[], object] | None = None,
        quota_owner: str = "",
        size: int = 0,
    ) -> None:
        """Run a function in a transaction, and call `on_done` when its writes are durable or have failed."""
        item = WorkItem(
            work,
            on_done,
            must_happen=must_happen,
            on_postponed_done=on_postponed_done,
            quota_owner=quota_owner,
            size=size,
        )
        # Under the lock, because an item after the `None` that ends the thread would never be run.
        with self._lock:
            if self._closed:
                raise HoldfastError(codes.STORE_CLOSED, f"The store '{self._path}' is closed.")
            self._queue.put(item)

    def after_commit(self, hook: AfterCommit) -> None:
        self._hooks[hook] = None

    @property
    def postponed_writes(self) -> int:
        return len(self._postponed)

    async def stop(self) -> None:
        """Finish pending writes, release all leases and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._last, released = awaited_item(lambda tx: tx.release_all())
        self._queue.put(None)
        try:
            await released
        except HoldfastError:
            # The leases expire when this process ends.
            log.warning("sessions not released", exc_info=True, extra={"path": self._path})
        finally:
            # `join` does not block for long: the thread only has to close its connection.
            self._thread.join()

    def _run(self) -> None:
        first = self._queue.get()
        try:
            db = self._open_database()
        except BaseException as error:
            if first is not None:
                first.error = error
                send_results([first])
            return
        try:
            tx = SqlTx(db, self._holder, self._now)
            self._run_items(db, tx, first)
        finally:
            db.close()

    def _run_items(self, db: Database, tx: SqlTx, first: WorkItem | None) -> None:
        items = [] if first is None else [first]
        while True:
            if items:
                self._commit(db, tx, items)
                send_results(items)
                items.clear()  # keep no result alive while waiting
            elif self._postponed:
                self._try_or_log(lambda: self._write_postponed(db, tx), "postponed writes not written")
            if self._turns.has_ended and self._turns.is_empty:
                self._run_last(db, tx)
                return
            if self._commits >= _COMMITS_BEFORE_EXTENDING and not self._is_wal_extended:
                self._is_wal_extended = True
                self._try_or_log(
                    lambda: self._write(db, tx, self._extend_wal), "write-ahead log not extended"
                )
            if tx.has_unindexed_messages and self._turns.is_empty:  # no caller is waiting
                self._try_or_log(
                    lambda: self._write(db, tx, tx.index_complete_messages), "messages not indexed"
                )
            wait = self._run_hooks_and_renew(db, tx)
            items = self._turns.take(wait)

    def _run_last(self, db: Database, tx: SqlTx) -> None:
        if self._last is not None:
            self._commit(db, tx, [self._last])
            send_results([self._last])

    def _commit(self, db: Database, tx: SqlTx, items: list[WorkItem]) -> None:
        try:
            self._write_postponed(db, tx)
            if not self._commit_together(db, tx, items):
                self._run_transaction(db, tx, partial(self._run_in_savepoints, db, tx, items))
        except BaseException as error:
            translated = self._translate(error)
            for item in items:
                item.error = item.error or translated
        for item in items:
            if item.error is not None and item.must_happen and is_transient(item.error):
                self._postponed.append(item)

    def _commit_together(self, db: Database, tx: SqlTx, items: list[WorkItem]) -> bool:
        """Run all items in one transaction. Return False if one of several failed; then nothing was written.

        There are no savepoints, because items hardly ever fail and a savepoint takes longer than many writes.
        """

        def run_all() -> None:
            for item in items:
                try:
                    item.result = item.work(tx)
                except BaseException as error:
                    raise _ItemFailedError from error

        try:
            self._run_transaction(db, tx, run_all)
        except _ItemFailedError as failed:
            if len(items) > 1:
                return False
            items[0].error = self._translate(failed.__cause__ or failed)
        return True

    def _write_postponed(self, db: Database, tx: SqlTx) -> None:
        """Make the postponed writes in order: first one alone, to see whether there is space, then the others in batches."""
        batch_size = 1
        while self._postponed:
            batch = self._postponed[:batch_size]
            self._run_transaction(db, tx, partial(self._run_postponed, db, tx, batch))
            del self._postponed[: len(batch)]
            for item in batch:
                item.notify_postponed_done()
            batch_size = _MAX_POSTPONED_BATCH

    def _run_postponed(self, db: Database, tx: SqlTx, batch: list[WorkItem]) -> None:
        for item in batch:
            _, error = self._run_in_savepoint(db, tx, item.work)
            if error is not None and is_transient(error):
                raise error
            if error is not None:
                log.error("postponed write failed", exc_info=error, extra={"path": self._path})

    def _run_transaction(self, db: Database, tx: SqlTx, work: Callable[[], object]) -> None:
        """Call a function in a transaction, and make its writes durable. If it raises, they are rolled back.

        Not a context manager: one made of a generator would take longer than some statements.
        """
        if self._failure is not None:
            raise self._failure
        with self._transaction_lock:
            db.execute("BEGIN IMMEDIATE")
            try:
                tx.on_begin()
                work()
                db.execute("COMMIT")
            except BaseException:
                tx.on_rollback()
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        tx.on_commit()
        self._commits += 1
        self._holds_leases = tx.holds_leases

    def _run_in_savepoints(self, db: Database, tx: SqlTx, items: list[WorkItem]) -> None:
        for item in items:
            item.result, item.error = self._run_in_savepoint(db, tx, item.work)

    def _run_in_savepoint(self, db: Database, tx: SqlTx, work: Work) -> tuple[Any, BaseException | None]:
        """Run a function in a savepoint. If it fails, roll back its writes. Return its result and its error."""
        result, failure = None, None
        state = tx.savepoint_state()
        db.execute("SAVEPOINT work")
        try:
            result = work(tx)
        except BaseException as error:
            # Some errors, such as a full disk, roll back the whole transaction, including the savepoint.
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO work")
            tx.on_rollback(state)
            failure = self._translate(error)
        db.execute("RELEASE work")
        return result, failure

    def _translate(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        translated = explain_sqlite_error(error, self._path)
        if translated is None:
            return error
        translated.__cause__ = error
        if translated.code is codes.STORE_FAILED:
            # After a failed sync it is unknown what is on the disk, so stop writing.
            self._failure = translated
        return translated

    def _run_hooks_and_renew(self, db: Database, tx: SqlTx) -> float | None:
        """Call the hooks and renew the leases, if they are due.

        Return after how many seconds this must be called again; None if only after the next item.
        """
        waits: list[float] = []
        now = time.monotonic()
        for hook in [*self._hooks]:
            # A hook that is not due is not called: it would delay the callers that wait for the last commit.
            due = self._hooks[hook]
            if due is None or now >= due:
                wait = _run_hook(hook, tx)
                due = self._hooks[hook] = None if wait is None else now + wait
            if due is not None:
                waits.append(due - now)
        if not self._holds_leases:
            self._renew_at = None
        elif self._renew_at is None:
            self._renew_at = time.monotonic() + self._renew_seconds
        elif time.monotonic() >= self._renew_at:
            self._try_or_log(lambda: self._write(db, tx, tx.renew), "leases not renewed")
            self._renew_at = time.monotonic() + self._renew_seconds
        if self._renew_at is not None:
            waits.append(max(0.0, self._renew_at - time.monotonic()))
        if self._postponed:
            waits.append(_RETRY_SECONDS)
        return min(waits, default=None)

    def _write(self, db: Database, tx: SqlTx, work: Callable[[], object]) -> None:
        self._write_postponed(db, tx)
        self._run_transaction(db, tx, work)

    def _extend_wal(self) -> None:
        extend_wal(Path(self._path))

    def _try_or_log(self, work: Callable[[], object], log_message: str) -> None:
        """Do work that no caller waits for. Log its error, unless it is transient."""
        try:
            work()
        except Exception as error:
            if not is_transient(self._translate(error)):
                log.exception(log_message, extra={"path": self._path})


def _run_hook(hook: AfterCommit, tx: SqlTx) -> float | None:
    try:
        return hook(tx)
    except Exception:
        log.exception("hook after commit failed")
        return None
