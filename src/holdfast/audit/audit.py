"""The audit of a store: adds records to the chain, in the commit of the event they are about, and keeps the anchor."""

import threading
import time
from logging import getLogger
from types import TracebackType

from holdfast.audit.anchor import Anchor
from holdfast.audit.chain import Head, Verdict, genesis, link, verify
from holdfast.audit.record import AuditRecord, cut, interrupted, write_record
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled
from holdfast.model.mask import Mask
from holdfast.store.appender import Also
from holdfast.store.database import passes
from holdfast.store.interrupted import end_interrupted
from holdfast.store.store import Reads, Store, Tx

log = getLogger(__name__)

# The anchor is a file of its own, with a sync of its own: once a second is often enough.
ANCHOR_SECONDS = 1.0
_MOST_OWED = 1000


class Audit:
    """Open it around the work and close it before the store: closing anchors the last record."""

    def __init__(
        self,
        store: Store,
        anchor: Anchor,
        *,
        arguments: bool = False,
        anchor_seconds: float = ANCHOR_SECONDS,
    ) -> None:
        self.keeps_arguments = arguments
        """Whether the arguments of calls are kept themselves, and not their hash alone."""
        self._store = store
        self._anchor = anchor
        self._seconds = anchor_seconds
        self._behind = False
        """Whether the anchor may not have the last record yet."""
        self._next = 0.0
        self._trouble = ""
        """Why the anchor could not be moved the last time."""
        self._stopped = False
        # The writing thread moves the anchor while the work goes on, a reading one when it ends.
        self._lock = threading.Lock()

    async def __aenter__(self) -> "Audit":
        # The first anchor comes before the first record: from then on a missing one means that it was removed.
        await self._store.read(self._begin)
        await self._store.read(self._advance_or_tell)
        self._store.after_commit(self._after_commit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.read(self._advance_or_tell)
        self._stopped = True

    def add(self, tx: Tx, record: AuditRecord, mask: Mask | None = None) -> int:
        """Add a record within a transaction; its place in the chain."""
        row = link(_head(tx), write_record(record, mask or Mask()))
        tx.audit_append(row)
        self._behind = True
        return row.seq

    def adds(self, record: AuditRecord, mask: Mask | None = None) -> Also:
        """What an appender does along with an event: add this record."""
        return lambda tx: self.add(tx, record, mask)

    def add_interrupted(self, tx: Tx, context: SessionContext, called: ToolCalled) -> int:
        """Add the record of a call that was cut off, within the transaction that ends it."""
        return self.add(tx, interrupted(context, called, keep=self.keeps_arguments))

    def end_interrupted(self, tx: Tx, context: SessionContext) -> None:
        """End what was cut off in a session, each call with its record."""
        end_interrupted(tx, context.session_id, lambda called: self.add_interrupted(tx, context, called))

    async def record(self, record: AuditRecord, mask: Mask | None = None) -> int:
        """Add a record that belongs to no event; returns when it is durable."""
        record = cut(record)
        try:
            return await self._store.write(lambda tx: self.add(tx, record, mask))
        except HoldfastError as error:
            # Who asks in vain again and again on a full disk must not fill the memory as well.
            if passes(error) and self._store.owes < _MOST_OWED:
                self._store.owe(lambda tx: self.add(tx, record, mask))
            raise

    async def verify(self) -> Verdict:
        """Follow the whole chain."""
        anchor = self._anchor.read()
        return await self._store.read(lambda reads: verify_store(reads, anchor))

    def _begin(self, reads: Reads) -> None:
        if self._anchor.read() is None and reads.audit_head() is None:
            self._anchor.write(genesis(reads.store_id()))

    def _after_commit(self, reads: Reads) -> float | None:
        """Look after the anchor once in a while, whoever's record it lacks; again and again until it has the last one."""
        if self._stopped:
            return None
        if time.monotonic() >= self._next:
            self._advance_or_tell(reads)
        return max(0.0, self._next - time.monotonic()) if self._behind else None

    def _advance_or_tell(self, reads: Reads) -> None:
        try:
            self._advance(reads)
        except (HoldfastError, OSError) as error:
            if str(error) != self._trouble:
                log.exception("audit not anchored")
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _advance(self, reads: Reads) -> None:
        """Move the anchor to the head, but never away from a record that the table does not have any more.

        Only what is committed may be anchored, so this never runs inside a transaction that writes.
        """
        with self._lock:
            self._next = time.monotonic() + self._seconds
            # The anchor first: another process may move it on to records that an earlier look did not see.
            anchor = self._anchor.read()
            head = _head(reads)
            if anchor is None or not _fits(reads, anchor):
                self._stopped = True
                log.error(
                    "audit does not fit its anchor; run: holdfast audit verify", extra={"seq": head.seq}
                )
                return
            # After a write it is looked at once more: a slower neighbour may put an earlier head in its place.
            self._behind = head.seq > anchor.seq
            if self._behind:
                self._anchor.write(head)


def verify_store(reads: Reads, anchor: Head | None) -> Verdict:
    """Follow a store's whole chain, row by row; the anchor was read before."""
    return verify(reads.audit_rows(), genesis(reads.store_id()), anchor)


def _head(reads: Reads) -> Head:
    row = reads.audit_head()
    return genesis(reads.store_id()) if row is None else Head(row.seq, row.digest)


def _fits(reads: Reads, anchor: Head) -> bool:
    if anchor.seq == 0:
        return anchor == genesis(reads.store_id())
    row = reads.audit_row(anchor.seq)
    return row is not None and row.digest == anchor.digest
