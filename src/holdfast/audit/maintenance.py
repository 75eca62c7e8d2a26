"""Back up a store with its anchor, and verify the audit in a store's file."""

from dataclasses import replace
from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import has_record, verify_store
from holdfast.audit.chain import Head, Verdict, genesis
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import maintenance
from holdfast.store.errors import translate_errors
from holdfast.store.maintenance import open_for_reading
from holdfast.store.sql_read import SqlReadTx


def backup(path: Path, copy: Path) -> None:
    """Copy the store and its anchor. The anchor is read first, so that it is never ahead of the copied chain."""
    copied_anchor = FileAnchor.for_database(copy)
    if copied_anchor.path.exists():
        raise HoldfastError(
            codes.FILE_EXISTS,
            f"'{copied_anchor.path}' already exists and belongs to another copy. Nothing was changed.",
        )
    anchored = FileAnchor.for_database(path).read()
    maintenance.backup(path, copy)
    if anchored is None:
        return
    try:
        copied_anchor.write(anchored)
    except BaseException:
        # A copy without an anchor would fail verification.
        copy.unlink()
        raise


def verify_file(path: Path, expected: Head | None = None) -> Verdict | None:
    """Verify the audit in a store's file, which may be damaged in any way. None if it has no audit yet.

    `expected` is a head that was printed before. It detects that an older copy of the store and its anchor was put back.
    """
    anchor = FileAnchor.for_database(path)
    anchored = anchor.read()
    with open_for_reading(path) as db:
        tx = SqlReadTx(db)
        try:
            with translate_errors(path, reading=True):
                # A store that never had an audit has no anchor and no calls either.
                is_new = not anchor.path.exists() and tx.audit_head() is None
                if is_new and expected is None and tx.session_with_unrecorded_calls() is None:
                    return None
                verdict = verify_store(tx, genesis(tx.store_id()) if is_new else anchored)
                return _compare(tx, verdict, expected) if verdict.is_good else verdict
        except HoldfastError as error:
            if error.code is not codes.STORE_CORRUPT:
                raise
            return Verdict(
                seq=0,
                anchored_seq=0 if anchored is None else anchored.seq,
                problem=f"The records cannot be read: {str(error.__cause__ or error).rstrip('.')}.",
            )


def _compare(tx: SqlReadTx, verdict: Verdict, expected: Head | None) -> Verdict:
    """Compare an intact chain with the stored events and with a head that is known from before."""
    if expected is not None and not has_record(tx, expected):
        return replace(
            verdict,
            problem=f"Record {expected.seq} is not the expected one: an older copy of the store and its anchor was put "
            "back, or the records were rewritten.",
        )
    session_id = tx.session_with_unrecorded_calls()
    if session_id is not None:
        return replace(
            verdict,
            problem=f"The session {session_id} has calls without a record: records were removed, and the anchor was "
            "changed or removed with them.",
        )
    return verdict
