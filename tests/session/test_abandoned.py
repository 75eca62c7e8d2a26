"""Sessions that a dead process left, or nobody ever held: the next host ends what is open in them, and closes them."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.event import ToolCalled
from holdfast.model.ids import SessionId
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import SessionState
from holdfast.store.sqlite import SqliteStore
from tests.connect.conftest import HostFactory, counter, make_host
from tests.session.test_audited import notes
from tests.store.disks import Failing
from tests.store.sessions import new_session, refused

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

EVERY = SessionQuery(reach=OPERATOR)
HOURS = 5 * 3600 * 1_000_000


@pytest.mark.promise("AUD-01")
async def test_who_fails_to_take_up_a_session_leaves_it_to_the_next_one(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host does not look at what the dead left: as if the owner had died since."""
    disk = Failing()
    made = make_host({})
    cut_off = ToolCalled(call_id="call_1", server="c", tool="count", arguments={})
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        async with Host(settings=made.settings, store=store) as host, host.session(cwd=tmp_path) as session:
            session_id = session.context.session_id
            await store.append(session_id, cut_off)
        await _dies(store, session_id)
        with monkeypatch.context() as patched:
            patched.setattr("holdfast.host.end_abandoned", _nothing)
            async with Host(settings=made.settings, store=store) as host:
                disk.fails_with = sqlite3.SQLITE_FULL
                with refused(codes.STORE_FULL):
                    await host.reopen(session_id, Opening(cwd=tmp_path))
                disk.fails_with = 0
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while not (kept := await notes(host, AuditKind.CALL)):
                await asyncio.sleep(0.01)
        left = await store.session(session_id)

    assert [(note.call_id, note.reason) for note in kept] == [("call_1", "INTERRUPTED")]
    assert left is not None
    assert (left.state, left.lease) == (SessionState.CLOSED, None)


@pytest.mark.promise("AUD-01")
async def test_one_session_that_cannot_be_read_keeps_no_other_from_being_ended(
    make_host: HostFactory, tmp_path: Path
) -> None:
    made = make_host({})
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        ids: list[SessionId] = []
        for number in range(3):
            async with Host(settings=made.settings, store=store) as host, host.session(cwd=tmp_path) as one:
                ids.append(one.context.session_id)
                await store.append(
                    ids[-1], ToolCalled(call_id=f"call_{number}", server="c", tool="t", arguments={})
                )
        for session_id in ids:
            await _dies(store, session_id)
        await store.write(
            lambda tx: tx._db.execute(  # type: ignore[attr-defined]
                "UPDATE events SET body = x'7b' WHERE kind = 'ToolCalled' AND key = 'called:call_1'"
            )
        )
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while len(kept := await notes(host, AuditKind.CALL)) < 2:
                await asyncio.sleep(0.01)

    assert sorted(note.call_id for note in kept) == ["call_0", "call_2"]


@pytest.mark.promise("AUD-01", "STO-03")
async def test_what_was_left_without_an_owner_is_settled_and_what_may_be_asleep_is_not(
    make_host: HostFactory, tmp_path: Path
) -> None:
    """A copy has no holders; a holder on another machine cannot be seen, and is believed for a day."""
    made = make_host({})
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        copied, idle, asleep = [await new_session(store) for _ in range(3)]
        for session_id in (copied, asleep):
            await store.append(
                session_id, ToolCalled(call_id=f"call_{session_id}", server="c", tool="t", arguments={})
            )

        def hours_ago(tx: Any) -> None:
            tx.hold(asleep)
            tx._db.execute(
                "UPDATE leases SET holder = 'x', machine = 'elsewhere', until = until - ?", (HOURS,)
            )

        await store.write(hours_ago)
        await store.let_go(asleep)
        order = [stored.context.session_id for stored in (await store.sessions(EVERY)).items]
        async with Host(settings=made.settings, store=store) as host, asyncio.timeout(10):
            while (await store.session(copied)).state is SessionState.OPEN:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            kept = await notes(host, AuditKind.CALL)
        after = (await store.sessions(EVERY)).items

    assert [note.call_id for note in kept] == [f"call_{copied}"]
    assert {stored.context.session_id: stored.state for stored in after} == {
        copied: SessionState.CLOSED,
        idle: SessionState.CLOSED,
        asleep: SessionState.OPEN,
    }
    assert [stored.context.session_id for stored in after] == order


@pytest.mark.promise("AUD-02")
async def test_a_store_that_a_program_brings_is_anchored_like_any_other(
    make_host: HostFactory, tmp_path: Path
) -> None:
    made = make_host({})
    for _ in range(2):
        async with (
            SqliteStore(tmp_path / "holdfast.db") as store,
            Host(settings=made.settings, servers={"c": counter()}, store=store) as host,
            host.session(cwd=tmp_path) as session,
        ):
            await session.call("c.count")

    anchor = FileAnchor.beside(tmp_path / "holdfast.db").read()
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        verdict = await store.read(lambda reads: verify_store(reads, anchor))
    assert (verdict.good, verdict.seq) == (True, 2)


async def _dies(store: SqliteStore, session_id: SessionId) -> None:
    """Leave a session as a process does that was killed: open, and held by the dead."""

    def die(tx: Any) -> None:
        tx.hold(session_id)
        tx._db.execute("UPDATE sessions SET state = 'open'")
        tx._db.execute("UPDATE leases SET holder = 'x', boot = 'earlier'")

    await store.write(die)
    await store.let_go(session_id)


async def _nothing(*_: object) -> None: ...
