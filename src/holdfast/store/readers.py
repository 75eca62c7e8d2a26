"""The threads that read, each with a connection of its own, so that reading stops neither the writing nor the loop."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import Database, Look, connect_to_read, is_disturbed, told
from holdfast.store.job import Job, send_back
from holdfast.store.sqlreads import SqlReads


class Readers:
    """A few reading threads on one inbox, started when first needed."""

    def __init__(self, path: Path, count: int = 2) -> None:
        self._path = path
        self._count = count
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[SqlReads], Any]) -> Any:
        """Run a function that reads."""
        job = Job(work)
        with self._lock:
            if self._closed:
                raise HoldfastError(codes.STORE_CLOSED, f"The store '{self._path}' is closed.")
            if len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name="holdfast-store-reader", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._inbox.put(job)
        return await job.future

    async def stop(self) -> None:
        """Finish what was asked for and end the threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        ended = [Job(lambda _: None) for _ in self._threads]
        for job in ended:
            self._inbox.put(job)
            self._inbox.put(None)
        for job in ended:
            await job.future
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        db: Database | None = None
        try:
            while (job := self._inbox.get()) is not None:
                try:
                    with told(self._path, reads=True):
                        db = db or connect_to_read(self._path)
                        job.outcome = self._read(db, job.work)
                except BaseException as error:
                    job.error = error
                if isinstance(db, Look):  # the disk may be another one by the next time
                    db.close()
                    db = None
                send_back([job])
        finally:
            if db is not None:
                db.close()

    def _read(self, db: Database, work: Callable[[SqlReads], Any]) -> Any:
        try:
            outcome = read_whole(db, work)
        except Exception:
            if not is_disturbed(db, self._path):
                raise
        else:
            if not is_disturbed(db, self._path):
                return outcome
        # What somebody wrote to meanwhile can be read in the ordinary way by now.
        with closing(connect_to_read(self._path)) as again:
            return read_whole(again, work)


def read_whole(db: Database, work: Callable[[SqlReads], Any]) -> Any:
    """Run a function that reads, all of it from one moment."""
    db.execute("BEGIN")
    try:
        return work(SqlReads(db))
    finally:
        if db.in_transaction:  # some failures end it by themselves
            db.execute("ROLLBACK")
