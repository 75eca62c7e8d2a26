"""Verify the audit in a store's file."""

from dataclasses import replace
from pathlib import Path

from holdfast.audit.approvals import unrecorded_approvals
from holdfast.audit.audit import has_record, verify_store
from holdfast.audit.chain import Verdict, empty_chain_head
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.anchor import Head
from holdfast.store.maintenance import anchor_of, open_for_reading
from holdfast.store.store import ReadTx


def verify_file(path: Path, expected: Head | None = None) -> Verdict | None:
    """Verify the audit in a store's file, even if the file is damaged. None if it has no audit yet.

    `expected` is the head that an earlier verification reported. If an older copy of the store and its anchor was put back, the record
    of this head is missing.
    """
    anchor = anchor_of(path)
    anchored = anchor.read()
    is_open = False
    try:
        with open_for_reading(path) as tx:
            is_open = True
            # Without an anchor and records, the store never had an audit, or someone removed both.
            is_new = not anchor.exists() and tx.audit_head() is None
            if is_new and expected is None and not _has_unrecorded(tx):
                return None
            verdict = verify_store(tx, empty_chain_head(tx.store_id()) if is_new else anchored)
            return _check_completeness(tx, verdict, expected) if verdict.is_intact else verdict
    except HoldfastError as error:
        if error.code is not codes.STORE_CORRUPT or not is_open:
            raise
        return Verdict(
            seq=0,
            anchored_seq=0 if anchored is None else anchored.seq,
            problem=f"The records cannot be read: {str(error.__cause__ or error).rstrip('.')}.",
            is_unreadable=True,
        )


def _has_unrecorded(tx: ReadTx) -> bool:
    return tx.session_with_unrecorded_calls() is not None or bool(unrecorded_approvals(tx))


def _check_completeness(tx: ReadTx, verdict: Verdict, expected: Head | None) -> Verdict:
    """Check whether an intact chain lacks records: the expected record, or records of calls or approvals."""
    if expected is not None and not has_record(tx, expected):
        return replace(
            verdict,
            seq=expected.seq,
            head=None,
            problem=f"Record {expected.seq} is not the expected one: an older copy of the store and its anchor was put "
            "back, or the records were rewritten.",
        )
    session_id = tx.session_with_unrecorded_calls()
    if session_id is not None:
        return replace(
            verdict,
            head=None,
            problem=f"The session {session_id} has calls without a record: records were removed, and the anchor was "
            "changed or removed with them.",
        )
    for approval in unrecorded_approvals(tx):
        return replace(
            verdict,
            head=None,
            problem=f"The approval of {approval.key} has no record: someone wrote it into the store's file. "
            "To see it, run: holdfast servers approvals",
        )
    return verdict
