"""Who holds a session: one live owner at a time, and a dead one never."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Titled
from holdfast.model.ids import SessionId
from holdfast.store.clock import from_stored, now
from holdfast.store.lease import LEASE_SECONDS, has_lapsed, is_abandoned
from holdfast.store.memory import MemoryStore, Shelf
from holdfast.store.owner import Owner, is_gone, this_process
from holdfast.store.rows import Lease
from holdfast.store.sqlite import SqliteStore
from tests.store.disks import Failing
from tests.store.sessions import new_session, refused

pytestmark = pytest.mark.anyio

HOLDER = """
import asyncio, sys
from pathlib import Path
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore

async def main():
    async with SqliteStore(Path(sys.argv[1])) as store:
        await store.hold(SessionId(sys.argv[2]))
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.promise("STO-04")
async def test_a_second_host_is_refused_by_name_until_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path, session_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"

            for write in (store.hold(session_id), store.append(session_id, Titled(title="mine"))):
                with refused(codes.SESSION_HELD) as caught:
                    await write
                assert f"process {holder.pid} on " in caught.value.message

            holder.kill()
            # Not waited for: what is left of it is a zombie, which holds nothing.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            lease = await store.hold(session_id)
        finally:
            holder.kill()
            holder.communicate()

        assert lease.owner == this_process()


def test_a_process_is_gone_when_its_pid_lives_on_in_another() -> None:
    here = this_process()

    assert is_gone(here) is False
    assert is_gone(replace(here, started="1")) is True
    assert is_gone(replace(here, pid=2**22 + 1)) is True


def test_a_process_of_before_the_last_boot_is_gone() -> None:
    assert is_gone(replace(this_process(), boot="earlier")) is True


def test_nothing_can_be_said_of_other_machines_and_other_containers() -> None:
    here = this_process()

    assert is_gone(replace(here, machine="elsewhere/1")) is None
    assert is_gone(replace(here, namespace="pid:[1]")) is None
    assert is_gone(replace(here, started="")) is None


@pytest.mark.promise("STO-04")
def test_a_hold_that_cannot_be_checked_lapses_with_time_alone() -> None:
    lease = _lease(replace(this_process(), machine="elsewhere/1"))

    assert has_lapsed(lease, now()) is False
    assert has_lapsed(lease, now() + int(LEASE_SECONDS * 1_000_000) + 1) is True


def test_a_live_owner_here_keeps_its_hold_however_late_it_is() -> None:
    assert has_lapsed(_lease(this_process()), now() + 10**12) is False


@pytest.mark.promise("STO-04")
async def test_whoever_lost_its_session_cannot_write_to_it_any_more(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as asleep, SqliteStore(path) as awake:
        session_id = await new_session(asleep)
        await asleep.hold(session_id)
        # As if it had been on another machine, and silent for too long.
        await awake.write(
            lambda tx: tx._db.execute("UPDATE leases SET machine = 'elsewhere', until = 0")  # type: ignore[attr-defined]
        )
        await awake.hold(session_id)

        with refused(codes.SESSION_HELD):
            await asleep.append(session_id, Titled(title="late"))

        await awake.append(session_id, Titled(title="mine"))
        await awake.let_go(session_id)
        with refused(codes.SESSION_HELD) as caught:
            await asleep.append(session_id, Titled(title="though nobody has it"))
        await asleep.hold(session_id)
        await asleep.append(session_id, Titled(title="mine again"))
        events = [stored.event async for stored in awake.events(session_id)]

    assert "is not held by this process any more" in caught.value.message
    assert events == [Titled(title="mine"), Titled(title="mine again")]


async def test_it_is_the_same_in_memory() -> None:
    shelf = Shelf()
    asleep, awake = MemoryStore(shelf), MemoryStore(shelf)
    session_id = await new_session(asleep)
    dead = replace(this_process(), boot="earlier")
    shelf.leases[session_id] = replace(await asleep.hold(session_id), owner=dead)
    await awake.hold(session_id)
    await awake.let_go(session_id)

    with refused(codes.SESSION_HELD):
        await asleep.append(session_id, Titled(title="late"))


@pytest.mark.promise("STO-04")
async def test_a_hold_that_was_undone_is_none(tmp_path: Path) -> None:
    disk = Failing()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        disk.fails_with = sqlite3.SQLITE_FULL
        with refused(codes.STORE_FULL):
            await store.hold(session_id)
        disk.fails_with = 0
        await store.append(session_id, Titled(title="nobody's"))
        assert await store.write(lambda tx: tx.delete(session_id))


@pytest.mark.promise("STO-04")
async def test_a_hold_is_known_though_another_write_of_its_batch_failed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as asleep, SqliteStore(path) as awake:
        session_id = await new_session(asleep)
        nobody = SessionId("sess_00000000000000000000000000000000")
        done = await asyncio.gather(
            asleep.hold(session_id), asleep.hold(nobody), asleep.hold(nobody), return_exceptions=True
        )
        await awake.write(
            lambda tx: tx._db.execute("UPDATE leases SET boot = 'earlier'")  # type: ignore[attr-defined]
        )
        await awake.hold(session_id)
        await awake.let_go(session_id)
        with refused(codes.SESSION_HELD):
            await asleep.append(session_id, Titled(title="late"))

    assert [isinstance(one, Exception) for one in done] == [False, True, True]


def test_a_holder_that_cannot_be_seen_is_not_given_up_before_a_day() -> None:
    asleep = _lease(replace(this_process(), machine="elsewhere/1"))
    hour = 3600 * 1_000_000

    assert [is_abandoned(asleep, now() + hours * hour) for hours in (1, 23, 25)] == [False, False, True]
    assert is_abandoned(_lease(replace(this_process(), boot="earlier")), now())
    assert not is_abandoned(_lease(this_process()), now() + 48 * hour)


async def test_a_holder_says_that_it_is_alive_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.writer.RENEW_SECONDS", 0.01)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        session_id = await new_session(store)
        first = await store.hold(session_id)

        until = first.until
        while until == first.until:
            seen = await store.read(lambda reads: reads.lease(session_id))
            assert seen is not None
            until = seen.until

        assert until > first.until


async def test_whoever_lets_go_of_one_session_holds_on_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.writer.RENEW_SECONDS", 0.01)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        kept, left, deleted = [await new_session(store) for _ in range(3)]
        first = await store.hold(kept)
        for session_id in (left, deleted):
            await store.hold(session_id)
        await store.let_go(left)
        await store.write(lambda tx: tx.delete(deleted))

        async with asyncio.timeout(10):
            while (seen := await store.read(lambda reads: reads.lease(kept))) is None or (
                seen.until == first.until
            ):
                await asyncio.sleep(0.01)
        assert store._writer._holding
        await store.let_go(kept)
        assert not store._writer._holding


def _lease(owner: Owner) -> Lease:
    return Lease(
        session_id=SessionId("sess_0123456789abcdef"),
        holder="holder",
        owner=owner,
        until=from_stored(now()) + timedelta(seconds=LEASE_SECONDS),
    )
