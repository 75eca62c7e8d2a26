"""Audit records of approvals. Each approval by a person has one, so an approval that someone wrote into the file stands out."""

import hashlib
import json

from holdfast.audit.record import AuditKind, AuditRecord, decode_record
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.store import ReadTx
from holdfast.store.types import APPROVED_ON_FIRST_USE, Approval

APPROVED = "approved"
REVOKED = "revoked"
_PROGRAM_KEYS = ('["server", ', '["program", ', '["confined server", ', '["confined program", ')
_TOOL_KEYS = '["pin", '
_KIND = f'"kind":"{AuditKind.APPROVAL}"'


def needs_record(approval: Approval) -> bool:
    """Whether an approval must have a record: for a server, its program, or a tool's definition that a person approved."""
    is_tool = approval.key.startswith(_TOOL_KEYS) and approval.by != APPROVED_ON_FIRST_USE
    return is_tool or approval.key.startswith(_PROGRAM_KEYS)


def approval_record(approval: Approval, outcome: str = APPROVED, *, by: str = "") -> AuditRecord:
    """The record that an approval was given, or revoked. `by` is who revoked it. Its `arguments_hash` identifies the approval."""
    what, origin_or_owner, server, *rest = json.loads(approval.key)
    is_tool = what == "pin"
    subject = "the definition of the tool" if is_tool else f"the {what} of {origin_or_owner}"
    return AuditRecord(
        at=approval.at,
        kind=AuditKind.APPROVAL,
        session_id=SessionId(""),
        workspace_id="",
        trust_level=Trust.DIRECT,
        user_id=origin_or_owner if is_tool else "",
        server=server,
        tool=rest[-1] if is_tool else "",
        outcome=outcome,
        reason=f"{subject}, by {by or approval.by}",
        arguments_hash=_hash(approval),
    )


def unrecorded_approvals(tx: ReadTx, book: int = 0) -> list[Approval]:
    """The approvals that the audit does not know, or knows as revoked: someone wrote them into the file."""
    recorded: set[str] = set()
    for row in tx.audit_rows(book=book):
        if _KIND in row.body:
            record = decode_record(row.body)
            if record.kind is AuditKind.APPROVAL and record.outcome == APPROVED:
                recorded.add(record.arguments_hash)
            elif record.kind is AuditKind.APPROVAL:
                recorded.discard(record.arguments_hash)
    return [
        approval for approval in tx.approvals() if needs_record(approval) and _hash(approval) not in recorded
    ]


def _hash(approval: Approval) -> str:
    text = json.dumps([approval.key, approval.content_hash, approval.by])
    return hashlib.sha256(text.encode()).hexdigest()
