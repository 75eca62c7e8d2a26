"""Audit records of approvals, and the approvals that have no record."""

import hashlib
import json

import msgspec

from holdfast.audit.record import AuditKind, AuditRecord, decode_record
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.store import ReadTx
from holdfast.store.types import APPROVED_ON_FIRST_USE, Approval

APPROVED = "approved"
REVOKED = "revoked"
# An approval's key is a JSON list that begins with its kind, see `resolve.approval_store`. What was approved, by kind:
_SUBJECTS = {
    "agent": "the agent's definition",
    "server": "the entry",
    "program": "the program",
    "edits": "later edits of the program",
    "confined server": "the entry, to run confined",
    "confined program": "the program, to run confined",
    "instructions": "the instructions",
}
_RECORDED_KEY_PREFIXES = tuple(f'["{kind}", ' for kind in _SUBJECTS)
_TOOL_KEY_PREFIX = '["pin", '
_MAX_GRANT = 500  # characters of each list in a record
_KIND_IN_JSON = f'"kind":"{AuditKind.APPROVAL}"'


def needs_record(approval: Approval) -> bool:
    """Whether the audit must have a record of this approval. A tool that was approved on first use has none."""
    is_tool = approval.key.startswith(_TOOL_KEY_PREFIX) and approval.by != APPROVED_ON_FIRST_USE
    return is_tool or approval.key.startswith(_RECORDED_KEY_PREFIXES)


def approval_record(approval: Approval, outcome: str = APPROVED, *, by: str = "") -> AuditRecord:
    """The record of an approval or, with the outcome `REVOKED`, of its revocation. `by` is who revoked it."""
    # The keys of tools: ["pin", user, server, identity, tool]. Of instructions: ["instructions", folder, file, user].
    # Of all other kinds: [kind, origin, name, …].
    kind, user_or_origin, name, *rest = json.loads(approval.key)
    is_tool = kind == "pin"
    subject = "the definition of the tool" if is_tool else f"{_SUBJECTS[kind]}, in {user_or_origin}"
    if kind == "confined server" and rest:
        subject += _describe_grant(rest[-1])
    return AuditRecord(
        at=approval.at,
        kind=AuditKind.APPROVAL,
        session_id=SessionId(""),
        workspace_id="",
        trust_level=Trust.DIRECT,
        user_id=user_or_origin if is_tool else "".join(rest) if kind == "instructions" else "",
        server=name,
        tool=rest[-1] if is_tool else "",
        outcome=outcome,
        reason=f"{subject}, by {by or approval.by}",
        arguments_hash=_hash(approval),
    )


def _describe_grant(text: str) -> str:
    try:
        grant = msgspec.json.decode(text, type=_Grant)
    except msgspec.DecodeError:
        return ""
    granted = {"network": grant.network, "readable": grant.readable, "writable": grant.writable}
    return "".join(f", {name}: {' '.join(values)[:_MAX_GRANT]}" for name, values in granted.items() if values)


class _Grant(msgspec.Struct):
    network: list[str] = []
    readable: list[str] = []
    writable: list[str] = []


def unrecorded_approvals(tx: ReadTx, book: int = 0) -> list[Approval]:
    """The approvals that have no record, or whose record says that they were revoked: someone wrote them into the file."""
    recorded: set[str] = set()
    for row in tx.audit_rows(book=book):
        if _KIND_IN_JSON in row.body:  # decode only the few records that may be approvals
            record = decode_record(row.body)
            if record.kind is AuditKind.APPROVAL and record.outcome == APPROVED:
                recorded.add(record.arguments_hash)
            elif record.kind is AuditKind.APPROVAL:
                recorded.discard(record.arguments_hash)
    return [
        approval for approval in tx.approvals() if needs_record(approval) and _hash(approval) not in recorded
    ]


def _hash(approval: Approval) -> str:
    """What connects an approval with its record: a hash of what was approved, and by whom."""
    text = json.dumps([approval.key, approval.content_hash, approval.by])
    return hashlib.sha256(text.encode()).hexdigest()
