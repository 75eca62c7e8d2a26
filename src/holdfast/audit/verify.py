"""Verify the audit in a store's file, which somebody may have edited in any way."""

from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.audit.chain import Verdict
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.database import told
from holdfast.store.sqlreads import SqlReads
from holdfast.store.upkeep import reading


def verify_file(path: Path) -> Verdict | None:
    """How far the chain holds; None where there is no audit yet. Records that cannot be read do not hold."""
    beside = FileAnchor.beside(path)
    anchor = beside.read()
    with reading(path) as db:
        reads = SqlReads(db)
        try:
            with told(path, reads=True):
                # A store that never had an audit has no anchor either.
                if not beside.path.exists() and reads.audit_head() is None:
                    return None
                return verify_store(reads, anchor)
        except HoldfastError as error:
            if error.code is not codes.STORE_CORRUPT:
                raise
            return Verdict(
                seq=0,
                anchored=0 if anchor is None else anchor.seq,
                problem=f"The records cannot be read: {str(error.__cause__ or error).rstrip('.')}.",
            )
