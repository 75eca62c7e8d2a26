"""The audit of a store: appends records to the chain, in the transaction of their event, and updates the anchor."""

import threading
import time
from logging import getLogger
from types import TracebackType

from holdfast.audit.anchor import Anchor
from holdfast.audit.chain import Head, Verdict, genesis, next_row, verify
from holdfast.audit.record import AuditRecord, encode_record, interrupted_record, truncate_record
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled
from holdfast.model.mask import Mask
from holdfast.store.appender import OnAppend
from holdfast.store.errors import is_transient
from holdfast.store.interrupted import end_interrupted
from holdfast.store.store import ReadTx, Store, Tx

log = getLogger(__name__)

# The anchor is a separate file with its own sync, so it is updated at most once a second.
ANCHOR_SECONDS = 1.0
_MAX_DEFERRED = 1000


class Audit:
    """The audit of one store. Use it as a context manager, and exit it before you close the store: the exit anchors the last record."""

    def __init__(
        self,
        store: Store,
        anchor: Anchor,
        *,
        keep_arguments: bool = False,
        anchor_seconds: float = ANCHOR_SECONDS,
    ) -> None:
        self.keeps_arguments = keep_arguments
        """Whether to store the arguments of calls, and not only their hash."""
        self._store = store
        self._anchor = anchor
        self._anchor_seconds = anchor_seconds
        self._is_behind = False
        """Whether the anchor may be behind the last record."""
        self._next_update = 0.0
        self._last_error = ""
        """The last error when updating the anchor, so that a repeated error is logged once."""
        self._anchor_is_stopped = False
        # The writer thread updates the anchor after commits; a reader thread does so when the audit is opened and closed.
        self._lock = threading.Lock()

    async def __aenter__(self) -> "Audit":
        # Write the anchor before the first record. From then on, a missing anchor means that someone removed it.
        await self._store.read(self._write_first_anchor)
        await self._store.read(self._advance_or_log)
        self._store.after_commit(self._after_commit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.read(self._advance_or_log)
        self._anchor_is_stopped = True

    def append(self, tx: Tx, record: AuditRecord, mask: Mask | None = None) -> int:
        """Append a record in this transaction. Return its number in the chain."""
        row = next_row(_head(tx), encode_record(record, mask or Mask()))
        tx.audit_append(row)
        self._is_behind = True
        return row.seq

    def append_callback(self, record: AuditRecord, mask: Mask | None = None) -> OnAppend:
        """A callback for `on_append` that appends this record, in the transaction of an event."""
        return lambda tx: self.append(tx, record, mask)

    def append_interrupted(self, tx: Tx, context: SessionContext, call: ToolCalled) -> int:
        """Append the record of an interrupted call, in the transaction that ends the call."""
        return self.append(tx, interrupted_record(context, call, keep_arguments=self.keeps_arguments))

    def end_and_record_interrupted(self, tx: Tx, context: SessionContext) -> None:
        """End the open calls and the open turn of a session, and append a record for each call."""
        end_interrupted(tx, context.session_id, lambda call: self.append_interrupted(tx, context, call))

    async def write(self, record: AuditRecord, mask: Mask | None = None) -> int:
        """Append a record in its own transaction, and wait until it is durable. Return its number in the chain.

        On a transient error it raises, and the record is written later.
        """
        record = truncate_record(record, mask or Mask())
        try:
            return await self._store.write(lambda tx: self.append(tx, record, mask))
        except HoldfastError as error:
            # Limited, so that repeated attempts do not fill the memory while the disk is full.
            if is_transient(error) and self._store.deferred_writes < _MAX_DEFERRED:
                self._store.defer(lambda tx: self.append(tx, record, mask))
            raise

    async def verify(self) -> Verdict:
        """Verify the whole chain."""
        anchored = self._anchor.read()
        return await self._store.read(lambda tx: verify_store(tx, anchored))

    def _write_first_anchor(self, tx: ReadTx) -> None:
        if self._anchor.read() is None and tx.audit_head() is None:
            self._anchor.write(genesis(tx.store_id()))

    def _after_commit(self, tx: ReadTx) -> float | None:
        """Update the anchor if `anchor_seconds` have passed. Return the seconds until the next update; None if none is due."""
        if self._anchor_is_stopped:
            return None
        if time.monotonic() >= self._next_update:
            self._advance_or_log(tx)
        return max(0.0, self._next_update - time.monotonic()) if self._is_behind else None

    def _advance_or_log(self, tx: ReadTx) -> None:
        try:
            self._advance(tx)
        except (HoldfastError, OSError) as error:
            if str(error) != self._last_error:
                log.exception("anchor not updated")
            self._last_error = str(error)
        else:
            self._last_error = ""

    def _advance(self, tx: ReadTx) -> None:
        """Set the anchor to the head of the chain. If the anchored record was changed or removed, log an error and stop updating the anchor.

        Only committed records may be anchored, so this never runs inside a write transaction.
        """
        with self._lock:
            self._next_update = time.monotonic() + self._anchor_seconds
            # Read the anchor first: another process may move it to a record that this transaction cannot see.
            anchored = self._anchor.read()
            head = _head(tx)
            if anchored is None or not has_record(tx, anchored):
                self._anchor_is_stopped = True
                log.error(
                    "audit does not match its anchor; run: holdfast audit verify", extra={"seq": head.seq}
                )
                return
            # Stays true after a write, so that the next update checks it: a slower process may write an earlier head.
            self._is_behind = head.seq > anchored.seq
            if self._is_behind:
                self._anchor.write(head)


def verify_store(tx: ReadTx, anchored: Head | None) -> Verdict:
    """Verify a store's whole chain against the anchored head, which must be read before."""
    return verify(tx.audit_rows(), genesis(tx.store_id()), anchored)


def has_record(tx: ReadTx, head: Head) -> bool:
    """Whether the record with this number and digest is in the store."""
    if head.seq == 0:
        return head == genesis(tx.store_id())
    row = tx.audit_row(head.seq)
    return row is not None and row.digest == head.digest


def _head(tx: ReadTx) -> Head:
    row = tx.audit_head()
    return genesis(tx.store_id()) if row is None else Head(row.seq, row.digest)
