"""Appends audit records to the chain of a store, and keeps the anchor up to date."""

import threading
import time
from collections.abc import Callable, Sequence
from logging import getLogger
from types import TracebackType

from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.chain import Verdict, empty_chain_head, next_row, verify
from holdfast.audit.record import AuditRecord, encode_record, interrupted_record, truncate_record
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled
from holdfast.store.anchor import Head
from holdfast.store.end_interrupted import end_interrupted
from holdfast.store.pending_event import OnAppend
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import Hold

log = getLogger(__name__)

# The anchor is a separate file with its own sync, so it is updated at most once a second.
ANCHOR_SECONDS = 1.0
_MAX_POSTPONED = 1000  # records


class Audit:
    """The audit of one store. Exit it before you close the store: the exit anchors the last record."""

    def __init__(
        self,
        store: Store,
        *,
        keep_arguments: bool = False,
        hash_arguments: Callable[[bytes], str] | None = None,
        anchor_seconds: float = ANCHOR_SECONDS,
    ) -> None:
        self.keeps_arguments = keep_arguments
        """Whether to store the arguments of calls, not only their hash."""
        self.hash_arguments = hash_arguments or ArgumentHasher()
        self._store = store
        self._anchor = store.anchor
        self._anchor_seconds = anchor_seconds
        self._is_behind = False
        """Whether there may be records after the anchored one."""
        self._next_update = 0.0
        self._last_error = ""
        """The last error of an anchor update. The same error is not logged twice in a row."""
        self._anchoring_has_stopped = False
        # The anchor is updated in the writer thread, and in a reader thread when the audit is opened and closed.
        self._lock = threading.Lock()

    async def __aenter__(self) -> "Audit":
        # The anchor is written before the first record, so that a missing anchor means that someone removed it.
        await self._store.read(self._write_first_anchor)
        await self._store.read(self._update_anchor_or_log)
        self._store.after_commit(self._after_commit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.read(self._update_anchor_or_log)
        self._anchoring_has_stopped = True

    def append(self, tx: Tx, record: AuditRecord, mask: Mask | None = None) -> int:
        """Append a record in this transaction. Return its number in the chain."""
        book = self._store.book
        head = tx.audit_head(book) or empty_chain_head(tx.store_id(), book)
        row = next_row(head, encode_record(record, mask or Mask()), book)
        tx.audit_append(row)
        self._is_behind = True
        return row.seq

    def append_callback(self, record: AuditRecord, mask: Mask | None = None) -> OnAppend:
        """A callback that appends this record in the transaction of an event."""
        return lambda tx: self.append(tx, record, mask)

    def append_all_callback(self, records: Sequence[AuditRecord], mask: Mask | None = None) -> OnAppend:
        """A callback that appends these records in the transaction of an event."""

        def on_append(tx: Tx) -> None:
            for record in records:
                self.append(tx, record, mask)

        return on_append

    def append_interrupted(self, tx: Tx, context: SessionContext, call: ToolCalled) -> int:
        """Append the record of an interrupted call."""
        record = interrupted_record(
            context,
            call,
            at=tx.now(),
            keep_arguments=self.keeps_arguments,
            hash_arguments=self.hash_arguments,
        )
        return self.append(tx, record)

    def end_and_record_interrupted(self, tx: Tx, hold: Hold, context: SessionContext) -> None:
        """End the open calls and the open turn of a session, and append a record for each call."""
        end_interrupted(tx, hold, lambda call: self.append_interrupted(tx, context, call))

    async def write(self, record: AuditRecord, mask: Mask | None = None, hold: Hold | None = None) -> int:
        """Append a record in its own transaction, and wait until it is durable. Return its number in the chain.

        Raise if `hold` has ended. Also raise if the write fails temporarily: then the store writes the record later.
        """
        record = truncate_record(record, mask or Mask())

        def append(tx: Tx) -> int:
            if hold is not None:
                tx.check_hold(hold)
            return self.append(tx, record, mask)

        # The number of postponed records is limited, because they are kept in memory.
        return await self._store.write(append, must_happen=self._store.postponed_writes < _MAX_POSTPONED)

    async def verify(self) -> Verdict:
        """Verify the whole chain of this store's book."""
        anchored = self._anchor.read()
        return await self._store.read(lambda tx: verify_store(tx, anchored, self._store.book))

    def _write_first_anchor(self, tx: ReadTx) -> None:
        book = self._store.book
        if self._anchor.read() is None and tx.audit_head(book) is None:
            self._anchor.write(empty_chain_head(tx.store_id(), book))

    def _after_commit(self, tx: ReadTx) -> float | None:
        """Update the anchor if `anchor_seconds` have passed. Return the seconds until the next update; None if none is due."""
        if self._anchoring_has_stopped:
            return None
        now = time.monotonic()
        if now >= self._next_update:
            self._update_anchor_or_log(tx)
            now = time.monotonic()
        return max(0.0, self._next_update - now) if self._is_behind else None

    def _update_anchor_or_log(self, tx: ReadTx) -> None:
        try:
            self._update_anchor(tx)
        except (HoldfastError, OSError) as error:
            if str(error) != self._last_error:
                log.error("anchor not updated", extra={"reason": str(error)})
            self._last_error = str(error)
        else:
            self._last_error = ""

    def _update_anchor(self, tx: ReadTx) -> None:
        """Set the anchor to the head of the chain. If the anchored record is not in the chain, stop updating the anchor.

        Never called inside a write transaction, because only committed records may be anchored.
        """
        with self._lock:
            self._next_update = time.monotonic() + self._anchor_seconds
            # Read the anchor first: another process may move it to a record that this transaction cannot see.
            anchored = self._anchor.read()
            head = _head(tx, self._store.book)
            if anchored is None or not has_record(tx, anchored, self._store.book):
                self._anchoring_has_stopped = True
                log.error(
                    "audit does not match its anchor; run: holdfast audit verify", extra={"seq": head.seq}
                )
                return
            # `_is_behind` stays True after the write, because another process may overwrite the anchor with an earlier head.
            self._is_behind = head.seq > anchored.seq
            if self._is_behind:
                self._anchor.write(head)


def verify_store(tx: ReadTx, anchored: Head | None, book: int = 0) -> Verdict:
    """Verify the whole chain of a book. The caller must read the anchored head before it begins the transaction."""
    return verify(tx.audit_rows(book=book), empty_chain_head(tx.store_id(), book), anchored)


def has_record(tx: ReadTx, head: Head, book: int = 0) -> bool:
    """Whether the book has the record of this head."""
    if head.seq == 0:
        return head == empty_chain_head(tx.store_id(), book)
    row = tx.audit_row(head.seq, book)
    return row is not None and row.digest == head.digest


def _head(tx: ReadTx, book: int) -> Head:
    row = tx.audit_head(book)
    return empty_chain_head(tx.store_id(), book) if row is None else Head(row.seq, row.digest)
