"""A session that is not kept: its events are in memory, and its audit records on disk before a result is told."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditRecord, decode_record
from holdfast.host.ephemeral_store import EphemeralStore
from holdfast.host.session_storage import SessionStorage
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Replied, ToolCalled
from holdfast.model.ids import new_call_id, new_session_id
from holdfast.model.trust import Trust
from holdfast.session.calls import CANCELLED
from holdfast.session.record import Record
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store, Tx
from holdfast.store.types import NewSession
from tests.store.disks import FailingDisk

pytestmark = [pytest.mark.anyio, pytest.mark.promise("API-06", "AUD-01")]


CONTEXT = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)


@asynccontextmanager
async def open_record(host_store: Store) -> AsyncIterator[Record]:
    async with Audit(host_store) as audit:
        storage = SessionStorage(host_store, audit).ephemeral()
        await storage.store.create(NewSession(context=CONTEXT))
        hold = await storage.store.acquire(CONTEXT.session_id)
        yield Record(CONTEXT, hold, storage.store, storage.audit, Mask())


async def audited(store: Store) -> list[AuditRecord]:
    return await store.read(lambda tx: [decode_record(row.body) for row in tx.audit_rows()])


async def test_each_record_is_on_disk_once_when_its_event_is_told(tmp_path: Path):
    call = ToolCall(call_id=new_call_id(), server="s", tool="t")
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        await record.calls.add_call(call)
        await record.calls.add_decision(call, Decision.ALLOW_ONCE)
        decided = await audited(store)
        await record.calls.add_start(call)
        await record.calls.add_end(call, CANCELLED, 0.1)
        ended = await audited(store)

    assert [note.kind for note in decided] == ["permission"]
    assert [note.kind for note in ended] == ["permission", "call"]


async def test_record_that_does_not_fit_on_the_disk_is_written_later_and_only_once(tmp_path: Path):
    call, disk = ToolCall(call_id=new_call_id(), server="s", tool="t"), FailingDisk()
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        open_record(store) as record,
    ):
        await record.calls.add_call(call)
        await record.calls.add_start(call)
        disk.fails_with = sqlite3.SQLITE_FULL
        with pytest.raises(HoldfastError, match="No space is left"):
            await record.calls.add_end(call, CANCELLED, 0.1)
        disk.fails_with = 0
        await record.add(Replied(message_id="m", text="the session continues"))
        await store.write(lambda tx: None)  # postponed writes go first

        assert [(note.kind, note.call_id) for note in await audited(store)] == [("call", call.call_id)]


async def test_records_of_a_transaction_that_was_rolled_back_are_not_written(tmp_path: Path):
    async with SqliteStore(tmp_path / "holdfast.db") as store, open_record(store) as record:
        ephemeral = record._store

        def append_and_fail(tx: Tx) -> None:
            audit = ephemeral.audit if isinstance(ephemeral, EphemeralStore) else None
            assert audit is not None
            audit.append_interrupted(tx, CONTEXT, ToolCalled(call_id="c", server="s", tool="t", arguments={}))
            raise HoldfastError(codes.BAD_ARGUMENT, "rolled back")

        with pytest.raises(HoldfastError, match="rolled back"):
            await ephemeral.write(append_and_fail)
        await record.add(Replied(message_id="m", text="later"))

        assert await audited(store) == []
