"""Audit records: their fields, and how they are made, encoded and decoded."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from msgspec import structs
from msgspec.structs import replace

from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome, ToolCalled
from holdfast.model.ids import SessionId
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust
from holdfast.store.end_interrupted import INTERRUPTED
from holdfast.wire.strict_json import decode_json

_MAX_NAME = 256  # characters of a name or an id
_MAX_REASON = 2000  # characters
_MAX_POSTPONED_FIELD = 4000  # characters per field while a record waits for the disk
_MAX_ARGUMENTS = 16 * 1024  # bytes
# In place of arguments that are large or not JSON, an object with only this key is stored. Its value is the size of the arguments.
_OMITTED = "too_large"


class AuditKind(StrEnum):
    """What happened."""

    CALL = "call"
    """A stored call. If it was not made, the outcome is `refused`."""
    REFUSAL = "refusal"
    """A session did not get a server: its entry was refused, or it failed to start."""
    PERMISSION = "permission"
    """The user's decision about a call."""
    DENIED = "denied"
    """A request that was refused before it was stored."""
    APPROVAL = "approval"
    """A person's approval of a server, a tool, an agent's definition or a project's instructions, or its revocation."""
    TOKEN = "token"
    """A token of an MCP client was created or revoked."""
    DELETION = "deletion"
    """A stored session was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The server, the tool and the call that a record is about."""

    server: str = ""
    tool: str = ""
    call_id: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The time, session, subject and outcome of an action."""

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
    """A keyed hash of the call's arguments. For an approval: a SHA-256 of the approval."""
    arguments: JsonObject | None = None
    """None unless the audit is set to keep arguments."""


def make_record(
    kind: AuditKind,
    context: SessionContext,
    subject: Subject,
    *,
    at: datetime,
    outcome: str,
    reason: str = "",
) -> AuditRecord:
    """A record of an action in this session. `at` is the store's time."""
    return AuditRecord(
        at=at,
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


def truncate_record(record: AuditRecord, mask: Mask) -> AuditRecord:
    """Shorten the fields of a record, to save memory while it waits for the disk.

    Secrets are masked before a field is cut, because half a secret would not be recognised.
    """
    return replace(
        record,
        server=mask.mask_start(record.server, _MAX_POSTPONED_FIELD),
        tool=mask.mask_start(record.tool, _MAX_POSTPONED_FIELD),
        reason=mask.mask_start(record.reason, _MAX_POSTPONED_FIELD),
    )


def arguments_to_store(arguments: bytes) -> JsonObject:
    """The arguments of a call, or their size if they are large or not JSON."""
    if len(arguments) > _MAX_ARGUMENTS:
        return size_of_arguments(arguments)
    try:
        value = decode_json(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return size_of_arguments(arguments)
    return value if isinstance(value, dict) else {"value": value}


def size_of_arguments(arguments: bytes) -> JsonObject:
    """The size of arguments, to be stored in their place."""
    return {_OMITTED: f"{len(arguments)} bytes"}


def interrupted_record(
    context: SessionContext,
    call: ToolCalled,
    *,
    at: datetime,
    keep_arguments: bool,
    hash_arguments: Callable[[bytes], str],
) -> AuditRecord:
    """The record of an interrupted call, made from its `ToolCalled` event."""
    subject = Subject(server=call.server, tool=call.tool, call_id=call.call_id)
    text = msgspec.json.encode(call.arguments)
    return replace(
        make_record(AuditKind.CALL, context, subject, at=at, outcome=Outcome.CANCELLED, reason=INTERRUPTED),
        # If secrets were masked in the event, or its arguments omitted, the hash of the original arguments is unknown.
        arguments_hash=""
        if MASKED.encode() in text or [*call.arguments] == [_OMITTED]
        else hash_arguments(text),
        arguments=arguments_to_store(text) if keep_arguments else None,
    )


def encode_record(record: AuditRecord, mask: Mask) -> str:
    """Encode a record as one line of ASCII, with secrets masked."""
    names = (record.user_id, record.server, record.tool, record.call_id, record.outcome)
    text = "\n".join(names)  # one search is faster than one for each name
    if len(text) > _MAX_NAME or mask.contains(text):  # in a shorter text, no name is too long
        names = tuple(mask.mask_known(name)[:_MAX_NAME] for name in names)
    user_id, server, tool, call_id, outcome = names
    at = record.at if record.at.tzinfo is UTC else record.at.astimezone(UTC)
    fields = _Fields(
        arguments=None if record.arguments is None else mask.mask_all_in_json(record.arguments),
        arguments_hash=record.arguments_hash,
        # The same text as that of `isoformat`, but made faster.
        at=f"{msgspec.to_builtins(at)[:-1]}+00:00"
        if at.microsecond
        else at.isoformat(timespec="microseconds"),
        call_id=call_id,
        duration_ms=record.duration_ms,
        kind=record.kind,
        outcome=outcome,
        reason=mask.mask_all(record.reason)[:_MAX_REASON] if record.reason else "",
        server=server,
        session_id=record.session_id,
        tool=tool,
        trust_level=record.trust_level,
        user_id=user_id,
        workspace_id=record.workspace_id,
    )
    try:
        line = _encode(fields)
        if line.isascii():
            return (line if line.find(b"\x7f") < 0 else line.replace(b"\x7f", b"\\u007f")).decode()
    except UnicodeEncodeError:
        pass
    # Escape characters outside of ASCII, and replace lone surrogates, which JSON parsers refuse.
    replaced = json.dumps(structs.asdict(fields), ensure_ascii=False).encode("utf-8", "replace")
    return _encode_as_ascii(json.loads(replaced)).replace("\x7f", "\\u007f")


class _Fields(msgspec.Struct, gc=False):
    """The fields of an encoded record, sorted by name."""

    arguments: Json
    arguments_hash: str
    at: str
    call_id: str
    duration_ms: float
    kind: str
    outcome: str
    reason: str
    server: str
    session_id: str
    tool: str
    trust_level: str
    user_id: str
    workspace_id: str


def decode_record(body: str) -> AuditRecord:
    """Decode the JSON text of a record."""
    try:
        return msgspec.json.decode(body, type=AuditRecord)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HoldfastError(
            codes.STORE_CORRUPT, f"An audit record is damaged: {error}. Run `holdfast audit verify`."
        ) from None


_encode = msgspec.json.Encoder(order="deterministic").encode  # sorts objects; the fields are sorted already
_encode_as_ascii = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
