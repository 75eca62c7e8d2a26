"""One thing that was done, or attempted: what the audit says about it."""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, ToolCalled
from holdfast.model.ids import SessionId
from holdfast.model.json import Json, JsonObject
from holdfast.model.mask import MASKED, Mask
from holdfast.model.trust import Trust
from holdfast.store.interrupted import INTERRUPTED

_LONGEST_NAME = 256
_LONGEST_REASON = 2000
_WAITING = 4000  # characters of each that may wait for the disk
_LONGEST_ARGUMENTS = 16 * 1024


class AuditKind(StrEnum):
    """What kind of thing was done."""

    CALL = "call"
    REFUSAL = "refusal"
    PERMISSION = "permission"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a record is about: which tool of which server, in which call."""

    server: str = ""
    tool: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """When, whose session, what, and what came of it; arguments by their hash, and themselves only where configured."""

    at: datetime
    kind: AuditKind
    session_id: SessionId
    workspace_id: str
    trust_level: Trust
    user_id: str = ""
    server: str = ""
    tool: str = ""
    call_id: str = ""
    outcome: str = ""
    reason: str = ""
    duration_ms: float = 0.0
    arguments_hash: str = ""
    arguments: JsonObject | None = None


def record(
    kind: AuditKind, context: SessionContext, subject: Subject, *, outcome: str, reason: str = ""
) -> AuditRecord:
    """A record of something that happens now in this session."""
    return AuditRecord(
        at=datetime.now(UTC),
        kind=kind,
        session_id=context.session_id,
        workspace_id=context.workspace_id,
        trust_level=context.trust_level,
        user_id=context.user_id or "",
        server=subject.server,
        tool=subject.tool,
        call_id=subject.call_id,
        outcome=outcome,
        reason=reason,
    )


def cut(record: AuditRecord) -> AuditRecord:
    """The record without what would only fill the memory while it waits: what is kept in the end is shorter still."""
    return replace(
        record,
        server=record.server[:_WAITING],
        tool=record.tool[:_WAITING],
        reason=record.reason[:_WAITING],
    )


def hash_arguments(arguments: bytes) -> str:
    """The SHA-256 of a call's arguments, as the JSON text they came in."""
    return hashlib.sha256(arguments).hexdigest()


def kept_arguments(arguments: bytes) -> JsonObject:
    """A call's arguments as a record keeps them where that is configured; of large ones, their size."""
    if len(arguments) > _LONGEST_ARGUMENTS:
        return {"too_large": f"{len(arguments)} bytes"}
    value: Json = msgspec.json.decode(arguments)
    return value if isinstance(value, dict) else {"value": value}


def interrupted(context: SessionContext, called: ToolCalled, *, keep: bool) -> AuditRecord:
    """The record of a call that was cut off; all that is known of it is what was stored when it began."""
    subject = Subject(server=called.server, tool=called.tool, call_id=called.call_id)
    text = msgspec.json.encode(called.arguments)
    return replace(
        record(AuditKind.CALL, context, subject, outcome=Outcome.CANCELLED, reason=INTERRUPTED),
        # Of arguments that were masked, the hash is not known any more.
        arguments_hash="" if MASKED.encode() in text else hash_arguments(text),
        arguments=kept_arguments(text) if keep else None,
    )


def write_record(record: AuditRecord, mask: Mask) -> str:
    """The record as the chain keeps it: one line of plain ASCII, whatever is in its names, and no secret."""
    fields: dict[str, Any] = {
        "at": record.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "kind": record.kind,
        "session_id": record.session_id,
        "workspace_id": record.workspace_id,
        "trust_level": record.trust_level,
        "user_id": mask.text(record.user_id)[:_LONGEST_NAME],
        "server": mask.text(record.server)[:_LONGEST_NAME],
        "tool": mask.text(record.tool)[:_LONGEST_NAME],
        "call_id": mask.text(record.call_id)[:_LONGEST_NAME],
        "outcome": mask.text(record.outcome)[:_LONGEST_NAME],
        "reason": mask.line(record.reason)[:_LONGEST_REASON],
        "duration_ms": record.duration_ms,
        "arguments_hash": record.arguments_hash,
        "arguments": None if record.arguments is None else mask.json(record.arguments),
    }
    line = _dump(fields)
    if "\\ud" in line:
        # Half a character is no text; readers of JSON refuse it.
        line = _dump(json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")))
    return line


def read_record(body: str) -> AuditRecord:
    """The record that was written down."""
    try:
        return msgspec.json.decode(body, type=AuditRecord)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HoldfastError(
            codes.STORE_CORRUPT, f"A record of the audit is damaged: {error}. Run `holdfast audit verify`."
        ) from None


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _dump(fields: dict[str, Any]) -> str:
    return _encode(fields).replace("\x7f", "\\u007f")
