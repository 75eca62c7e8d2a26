"""Records for the tests of the audit."""

from datetime import UTC, datetime
from typing import Any

from holdfast.audit.record import AuditKind, AuditRecord
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

SESSION = SessionId("sess_0123456789abcdef")


def record(number: int = 0, **fields: Any) -> AuditRecord:
    given: dict[str, Any] = {
        "at": datetime(2026, 11, 1, 12, 0, 0, number, tzinfo=UTC),
        "kind": AuditKind.CALL,
        "session_id": SESSION,
        "workspace_id": "garden",
        "trust_level": Trust.SANDBOXED,
        "server": "files",
        "tool": "read",
        "call_id": f"call_{number}",
        "outcome": "completed",
        "duration_ms": 1.5,
        "arguments_hash": "c0ffee",
    }
    return AuditRecord(**{**given, **fields})
