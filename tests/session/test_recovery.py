"""Sessions without a live owner: the next host ends their turns and calls, and closes them."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.event import ToolCalled
from holdfast.model.ids import SessionId
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.anchor import FileAnchor
from holdfast.store.types import Hold, SessionState
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import audit_records
from tests.store.disks import FailingDisk
from tests.store.sessions import new_session, raises_code

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

ALL = SessionQuery(visibility=ALL_SESSIONS)
FIVE_HOURS = 5 * 3600 * 1_000_000


@pytest.mark.promise("AUD-01")
async def test_session_that_could_not_be_reopened_is_recovered_by_the_next_host(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host skips recovery, as if the owner had died after that host started."""
    disk = FailingDisk()
    made = make_host({})
    interrupted = ToolCalled(call_id="call_1", server="c", tool="count", arguments={})
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        async with Host(settings=made.settings, store=store) as host, host.session(cwd=tmp_path) as session:
            session_id = session.context.session_id
            await store.append(session.record.hold, interrupted)
        await _kill_owner(store, session_id)
        with monkeypatch.context() as patched:
            patched.setattr("holdfast.host.retention.close_abandoned_sessions", _no_recovery)
            async with Host(settings=made.settings, store=store) as host:
                disk.fails_with = sqlite3.SQLITE_FULL
                with raises_code(codes.STORE_FULL):
                    await host.reopen(session_id, OpenOptions(cwd=tmp_path))
                disk.fails_with = 0
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while not (records := await audit_records(host, AuditKind.CALL)):
                await asyncio.sleep(0.01)
        recovered = await store.session(session_id)

    assert [(record.call_id, record.reason) for record in records] == [("call_1", "INTERRUPTED")]
    assert recovered is not None
    assert (recovered.state, recovered.lease) == (SessionState.CLOSED, None)


@pytest.mark.promise("AUD-01")
async def test_unreadable_session_does_not_prevent_the_recovery_of_others(
    make_host: HostFactory, tmp_path: Path
) -> None:
    made = make_host({})
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        ids: list[SessionId] = []
        for number in range(3):
            async with (
                Host(settings=made.settings, store=store) as host,
                host.session(cwd=tmp_path) as session,
            ):
                ids.append(session.context.session_id)
                called = ToolCalled(call_id=f"call_{number}", server="c", tool="t", arguments={})
                await store.append(session.record.hold, called)
        for session_id in ids:
            await _kill_owner(store, session_id)
        await store.write(
            lambda tx: tx._db.execute(  # type: ignore[attr-defined]
                "UPDATE events SET body = x'7b' WHERE kind = 'tool_called' AND key = 'called:call_1'"
            )
        )
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while len(records := await audit_records(host, AuditKind.CALL)) < 2:
                await asyncio.sleep(0.01)

    assert sorted(record.call_id for record in records) == ["call_0", "call_2"]


@pytest.mark.promise("AUD-01", "STO-03")
async def test_session_without_owner_is_recovered_and_one_held_on_another_machine_is_not(
    make_host: HostFactory, tmp_path: Path
) -> None:
    """A copied store has no owners. An owner on another machine cannot be checked, and counts as alive for a day."""
    made = make_host({})
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        copied, idle, elsewhere = [await new_session(store) for _ in range(3)]
        for session_id in (copied, elsewhere):
            hold = await store.acquire(session_id)
            called = ToolCalled(call_id=f"call_{session_id}", server="c", tool="t", arguments={})
            await store.append(hold, called)
            await store.release(hold)

        def hours_ago(tx: Any) -> None:
            tx.acquire(elsewhere)
            tx._db.execute(
                "UPDATE leases SET holder = 'x', machine = 'another', until = until - ?", (FIVE_HOURS,)
            )

        await store.write(hours_ago)
        order = [stored.context.session_id for stored in (await store.sessions(ALL)).items]
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while (await store.session(copied)).state is SessionState.OPEN:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            records = await audit_records(host, AuditKind.CALL)
        after = (await store.sessions(ALL)).items

    assert [record.call_id for record in records] == [f"call_{copied}"]
    assert {stored.context.session_id: stored.state for stored in after} == {
        copied: SessionState.CLOSED,
        idle: SessionState.CLOSED,
        elsewhere: SessionState.OPEN,
    }
    assert [stored.context.session_id for stored in after] == order


@pytest.mark.promise("AUD-02")
async def test_store_given_by_the_caller_is_anchored_too(make_host: HostFactory, tmp_path: Path) -> None:
    made = make_host({})
    for _ in range(2):
        async with (
            SqliteStore(tmp_path / "holdfast.db") as store,
            Host(settings=made.settings, servers={"c": counter_entry()}, store=store) as host,
            host.session(cwd=tmp_path) as session,
        ):
            await session.call("c.count")

    anchor = FileAnchor.for_database(tmp_path / "holdfast.db").read()
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        verdict = await store.read(lambda tx: verify_store(tx, anchor))
    assert (verdict.is_intact, verdict.seq) == (True, 2)


async def _kill_owner(store: SqliteStore, session_id: SessionId) -> None:
    """Leave a session as a killed process leaves it: open, with a lease of a dead owner."""

    def kill(tx: Any) -> Hold:
        hold = tx.acquire(session_id)
        tx._db.execute("UPDATE sessions SET state = 'open'")
        tx._db.execute("UPDATE leases SET holder = 'x', boot = 'earlier', epoch = epoch - 1")
        return hold

    # Its own hold has another epoch: releasing it leaves the lease of the dead owner.
    await store.release(await store.write(kill))


async def _no_recovery(*_: object) -> None: ...
