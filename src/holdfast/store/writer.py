"""The one thread that writes: it takes all that waits into one transaction, commits once, and then answers everyone."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import getLogger
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import Database, explain, passes
from holdfast.store.job import Job, send_back
from holdfast.store.lease import RENEW_SECONDS
from holdfast.store.sqltx import SqlTx
from holdfast.store.store import AfterCommit

log = getLogger(__name__)

Work = Callable[[SqlTx], Any]

# A larger batch gains nothing in speed and keeps the first of it waiting.
_MOST = 1000
# Somebody who asks in vain again and again on a full disk must not fill the memory as well.
_MOST_OWED = 10_000


class Writer:
    """Owns the one connection that writes. `open_database` runs in the thread, so that a slow disk stops no loop."""

    def __init__(
        self, open_database: Callable[[], Database], *, path: str, holder: str, now: Callable[[], int]
    ) -> None:
        self._open_database = open_database
        self._path = path
        self._holder = holder
        self._now = now
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-store-writer", daemon=True)
        self._lock = threading.Lock()
        self._closed = False
        self._failed: HoldfastError | None = None
        self._chores: list[AfterCommit] = []
        self._holding = False
        self._owed: list[Work] = []
        self._renew_at: float | None = None

    async def start(self) -> None:
        """Open the file; fails as opening it failed."""
        opened = Job(lambda _: None)
        self._inbox.put(opened)
        self._thread.start()
        try:
            await opened.future
        except BaseException:
            # Nobody will come to stop the thread.
            with self._lock:
                self._closed = True
            self._inbox.put(None)
            raise

    async def run(self, work: Work) -> Any:
        """Run a function in a transaction; returns when it is durable."""
        job = Job(work)
        # Under the lock nothing can be put behind the sentinel that ends the thread, where nobody would answer it.
        with self._lock:
            if self._closed:
                raise HoldfastError(codes.STORE_CLOSED, f"The store '{self._path}' is closed.")
            self._inbox.put(job)
        return await job.future

    def after_commit(self, chore: AfterCommit) -> None:
        """From now on, run this after every commit."""
        self._chores.append(chore)

    def owe(self, work: Work) -> None:
        """Run a function in the next transaction that is committed; leases are renewed in one at the latest."""
        with self._lock:
            if len(self._owed) < _MOST_OWED:
                self._owed.append(work)
                return
        log.error("too much is owed: a write is lost", extra={"path": self._path})

    async def stop(self) -> None:
        """Finish what was asked for, let go of every session, and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        last = Job(lambda tx: tx.let_go_of_all() if self._holding else None)
        self._inbox.put(last)
        self._inbox.put(None)
        try:
            await last.future
        except HoldfastError:
            # The end of this process lets go of them as well.
            log.warning("sessions not let go", exc_info=True, extra={"path": self._path})
        finally:
            # The thread has only its connection left to close.
            self._thread.join()

    def _run(self) -> None:
        first = self._inbox.get()
        try:
            db = self._open_database()
        except BaseException as error:
            if first is not None:
                first.error = error
                send_back([first])
            return
        try:
            tx = SqlTx(db, holder=self._holder, now=self._now)
            self._serve(db, tx, first)
        finally:
            db.close()

    def _serve(self, db: Database, tx: SqlTx, first: Job | None) -> None:
        jobs = [] if first is None else [first]
        wait: float | None = None
        while True:
            ended = self._gather(jobs, wait)
            if jobs:
                self._commit(db, tx, jobs)
                send_back(jobs)
                jobs.clear()
            if ended:
                return
            if tx.has_words and self._inbox.empty():  # everybody has their answer
                self._index(db, tx)
            wait = self._do_chores(db, tx)

    def _gather(self, jobs: list[Job], wait: float | None) -> bool:
        """Take all that waits; wait for the first of it. Says whether the end was reached."""
        try:
            while len(jobs) < _MOST:
                job = self._inbox.get_nowait() if jobs else self._inbox.get(timeout=wait)
                if job is None:
                    return True
                jobs.append(job)
        except Empty:
            pass
        return False

    def _commit(self, db: Database, tx: SqlTx, jobs: list[Job]) -> None:
        try:
            if self._failed is not None:
                raise self._failed
            db.execute("BEGIN IMMEDIATE")
            with _undone_on_error(db, tx):
                paid = self._pay(db, tx)
                for job in jobs:
                    job.outcome, job.error = self._attempt(db, tx, job.work)
                self._holding = tx.holds_any()
                db.execute("COMMIT")
                tx.committed()
            self._have_paid(paid)
        except BaseException as error:
            told = self._told(error)
            for job in jobs:
                job.error = job.error or told

    def _pay(self, db: Database, tx: SqlTx) -> int:
        """Write what could not be written when it was asked for, in order; how much of it, once this is committed."""
        owed = [*self._owed]
        for count, work in enumerate(owed):
            _, error = self._attempt(db, tx, work)
            if passes(error):
                return count
            if error is not None:
                log.error("owed write failed", exc_info=error, extra={"path": self._path})
        return len(owed)

    def _have_paid(self, count: int) -> None:
        if count:
            with self._lock:
                del self._owed[:count]

    def _attempt(self, db: Database, tx: SqlTx, work: Work) -> tuple[Any, BaseException | None]:
        """What came of some work in the transaction; if it failed, it left nothing there."""
        outcome, failure = None, None
        db.execute("SAVEPOINT work")
        try:
            outcome = work(tx)
        except BaseException as error:
            # Some failures, a full disk among them, end the whole transaction and with it the savepoint.
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO work")
            tx.forget()
            failure = self._told(error)
        db.execute("RELEASE work")
        return outcome, failure

    def _told(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        told = explain(error, self._path)
        if told is None:
            return error
        told.__cause__ = error
        if told.code is codes.STORE_FAILED:
            # After a failed sync nobody knows what the disk has: to go on would be to guess.
            self._failed = told
        return told

    def _do_chores(self, db: Database, tx: SqlTx) -> float | None:
        """Renew our leases and run what wants to run after a commit; how long to wait for work at most."""
        waits = [wait for chore in self._chores if (wait := _quietly(chore, tx)) is not None]
        if not self._holding:
            self._renew_at = None
        elif self._renew_at is None:
            self._renew_at = time.monotonic() + RENEW_SECONDS
        elif time.monotonic() >= self._renew_at:
            self._renew(db, tx)
            self._renew_at = time.monotonic() + RENEW_SECONDS
        if self._renew_at is not None:
            waits.append(max(0.0, self._renew_at - time.monotonic()))
        return min(waits, default=None)

    def _index(self, db: Database, tx: SqlTx) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            with _undone_on_error(db, tx):
                tx.index_ended()
                db.execute("COMMIT")
                tx.committed()
        except (sqlite3.Error, HoldfastError):
            log.exception("words not indexed", extra={"path": self._path})

    def _renew(self, db: Database, tx: SqlTx) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            with _undone_on_error(db, tx):
                paid = self._pay(db, tx)
                self._holding = tx.renew()
                db.execute("COMMIT")
                tx.committed()
            self._have_paid(paid)
        except sqlite3.Error:
            log.exception("leases not renewed", extra={"path": self._path})


def _quietly(chore: AfterCommit, tx: SqlTx) -> float | None:
    try:
        return chore(tx)
    except Exception:
        log.exception("chore after commit failed")
        return None


@contextmanager
def _undone_on_error(db: Database, tx: SqlTx) -> Iterator[None]:
    try:
        yield
    except BaseException:
        tx.forget()
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
