"""Makes `v1/`: a store of schema version 1, with its anchor, for the tests of the migration.

It needs the code that wrote this version. To make the files again, from the root of the repository:

    git archive f984784 src | tar x -C SCRATCH
    PYTHONPATH=SCRATCH/src python tests/store/make_v1_fixture.py tests/store/v1
"""
# It is written for the code of version 1, so the checkers of today's code skip it.
# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportMissingImports=false

import asyncio
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from v1_events import EVENTS, INTERRUPTED, REFUSAL, ROOTS, SHOP

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, AuditRecord
from holdfast.model.context import SessionContext
from holdfast.model.event import (
    PermissionDecided,
    Prompted,
    ServersResolved,
    SessionOpened,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.trust import Trust
from holdfast.store.maintenance import vacuum
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import Approval, NewSession, SessionChange

START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
_seconds = count(int(START.timestamp()))


async def main(folder: Path) -> None:
    path = folder / "holdfast.db"
    async with (
        SqliteStore(path, now=lambda: next(_seconds) * 1_000_000) as store,
        Audit(store, FileAnchor.for_database(path)) as audit,
    ):
        await _complete_session(store, audit)
        await _interrupted_session(store)
        for key in ('["server", "/home/ada/shop/.mcp.json", "files"]', '["tool", "", "files", "read"]'):
            approval = Approval(key=key, content_hash="c0ffee", by="ada", at=START)
            await store.write(lambda tx, approval=approval: tx.approve(approval))
    vacuum(path)


async def _complete_session(store: SqliteStore, audit: Audit) -> None:
    """A session with every kind of event, two turns, a refusal, a permission and a rejected call."""
    context = SessionContext(
        session_id=SHOP,
        trust_level=Trust.DIRECT,
        workspace_id="shop",
        cwd=ROOTS[0],
        roots=ROOTS,
    )
    await store.create(NewSession(context=context, title="", tags=("spring",), source="acp"))
    await store.acquire(SHOP)
    for event in EVENTS:
        record = _record(event, context)
        await store.write(
            lambda tx, event=event, record=record: (
                tx.append(SHOP, event),
                record and audit.append(tx, record),
            )
        )
    await store.write(lambda tx: tx.change(SHOP, SessionChange(settings={"mode": "ask"})))
    await store.release(SHOP)


async def _interrupted_session(store: SqliteStore) -> None:
    """A session whose process ended in the middle of a call."""
    context = SessionContext(session_id=INTERRUPTED, trust_level=Trust.DIRECT, cwd=ROOTS[0], roots=ROOTS[:1])
    await store.create(NewSession(context=context, title="Tulips", source="chat"))
    for event in (
        SessionOpened(cwd=ROOTS[0], roots=ROOTS[:1], trust_level=Trust.DIRECT),
        Prompted(turn_id="turn_3", message_id="msg_5", blocks=({"type": "text", "text": "And tulips?"},)),
        ToolCalled(call_id="call_3", server="files", tool="read", arguments={"path": "tulips.txt"}),
        ToolStarted(call_id="call_3"),
    ):
        await store.append(INTERRUPTED, event)


def _record(event: object, context: SessionContext) -> AuditRecord | None:
    def made(kind: AuditKind, **fields: str) -> AuditRecord:
        return AuditRecord(
            at=START,
            kind=kind,
            session_id=context.session_id,
            workspace_id=context.workspace_id,
            trust_level=context.trust_level,
            **{"server": "files", **fields},
        )

    match event:
        case ServersResolved():
            return made(
                AuditKind.REFUSAL, server=REFUSAL.server, outcome=REFUSAL.stage, reason=REFUSAL.reason
            )
        case PermissionDecided(call_id=call_id, decision=decision):
            return made(AuditKind.PERMISSION, call_id=call_id, outcome=decision)
        case ToolEnded(call_id=call_id, outcome=outcome, code=code):
            return made(AuditKind.CALL, call_id=call_id, outcome=outcome, reason=code)
        case _:
            return None


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
