"""The one thread that writes: it takes all that waits into one transaction, commits once, and then answers everyone."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
Then = Callable[[], object]

# A larger batch gains nothing in speed and keeps the first of it waiting.
_MOST = 1000
# What is owed is paid so much at a time, for a disk may have little space; and tried again so often.
_MOST_AT_ONCE = 100
_RETRY_SECONDS = 1.0
_NOTHING = object()


class Writer:
    """Owns the one connection that writes. `open_database` runs in the thread, so that a slow disk stops no loop."""

    def __init__(
        self, open_database: Callable[[], Database], *, path: str, holder: str, now: Callable[[], int]
    ) -> None:
        self._open_database = open_database
        self._path = path
        self._holder = holder
        self._now = now
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-store-writer", daemon=True)
        self._lock = threading.Lock()
        self._closed = False
        self._failed: HoldfastError | None = None
        self._chores: list[AfterCommit] = []
        self._holding = False
        self._owed: list[_Debt] = []
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

    def owe(self, work: Work, then: Then | None = None) -> None:
        """Run a function as soon as it can be committed, before all else that is written from now on."""
        debt = _Debt(work, then, asyncio.get_running_loop())
        with self._lock:
            self._owed.append(debt)
        self._inbox.put(_NOTHING)  # whoever sleeps wakes up and tries

    @property
    def owes(self) -> int:
        """How much is owed."""
        return len(self._owed)

    async def stop(self) -> None:
        """Finish what was asked for, let go of every session, and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        last = Job(lambda tx: tx.let_go_of_all())
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
            elif self._owed:
                self._quietly(lambda: self._pay(db, tx), "owed writes not written")
            if ended:
                return
            if tx.has_words and self._inbox.empty():  # everybody has their answer
                self._quietly(lambda: self._write(db, tx, tx.index_ended), "words not indexed")
            wait = self._do_chores(db, tx)

    def _gather(self, jobs: list[Job], wait: float | None) -> bool:
        """Take all that waits; wait for the first of it. Says whether the end was reached."""
        try:
            while len(jobs) < _MOST:
                job = self._inbox.get_nowait() if jobs else self._inbox.get(timeout=wait)
                if job is None:
                    return True
                if isinstance(job, Job):
                    jobs.append(job)
                elif not jobs:
                    return False
        except Empty:
            pass
        return False

    def _commit(self, db: Database, tx: SqlTx, jobs: list[Job]) -> None:
        try:
            self._pay(db, tx)
            with self._transaction(db, tx):
                for job in jobs:
                    job.outcome, job.error = self._attempt(db, tx, job.work)
        except BaseException as error:
            told = self._told(error)
            for job in jobs:
                job.error = job.error or told

    def _pay(self, db: Database, tx: SqlTx) -> None:
        """Write what is owed, in order: the first alone, which shows whether there is space, then some at a time."""
        some = 1
        while self._owed:
            paid = self._owed[:some]
            with self._transaction(db, tx):
                for debt in paid:
                    _, error = self._attempt(db, tx, debt.work)
                    if error is not None and passes(error):
                        raise error
                    if error is not None:
                        log.error("owed write failed", exc_info=error, extra={"path": self._path})
            with self._lock:
                del self._owed[: len(paid)]
            for debt in paid:
                debt.is_paid()
            some = _MOST_AT_ONCE

    @contextmanager
    def _transaction(self, db: Database, tx: SqlTx) -> Iterator[None]:
        """All that is written within is durable at the end, or none of it is kept."""
        if self._failed is not None:
            raise self._failed
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            tx.undone()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        tx.committed()
        self._holding = tx.holds_any

    def _attempt(self, db: Database, tx: SqlTx, work: Work) -> tuple[Any, BaseException | None]:
        """What came of some work in the transaction; if it failed, it left nothing there."""
        outcome, failure = None, None
        mark = tx.mark()
        db.execute("SAVEPOINT work")
        try:
            outcome = work(tx)
        except BaseException as error:
            # Some failures, a full disk among them, end the whole transaction and with it the savepoint.
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO work")
            tx.undone(mark)
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
        waits = [wait for chore in self._chores if (wait := _ran(chore, tx)) is not None]
        if not self._holding:
            self._renew_at = None
        elif self._renew_at is None:
            self._renew_at = time.monotonic() + RENEW_SECONDS
        elif time.monotonic() >= self._renew_at:
            self._quietly(lambda: self._write(db, tx, tx.renew), "leases not renewed")
            self._renew_at = time.monotonic() + RENEW_SECONDS
        if self._renew_at is not None:
            waits.append(max(0.0, self._renew_at - time.monotonic()))
        if self._owed:
            waits.append(_RETRY_SECONDS)
        return min(waits, default=None)

    def _write(self, db: Database, tx: SqlTx, work: Callable[[], object]) -> None:
        self._pay(db, tx)
        with self._transaction(db, tx):
            work()

    def _quietly(self, work: Callable[[], object], failed: str) -> None:
        """Do something that nobody waits for; what passes is tried again."""
        try:
            work()
        except Exception as error:
            if not passes(self._told(error)):
                log.exception(failed, extra={"path": self._path})


def _ran(chore: AfterCommit, tx: SqlTx) -> float | None:
    try:
        return chore(tx)
    except Exception:
        log.exception("chore after commit failed")
        return None


class _Debt:
    """Work that is owed, and whom to tell when it is done."""

    def __init__(self, work: Work, then: Then | None, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self._then = then
        self._loop = loop

    def is_paid(self) -> None:
        """Tell whoever wants to know; a loop that ended does not."""
        if self._then is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._then)
