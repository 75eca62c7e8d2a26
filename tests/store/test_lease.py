"""Leases: one live owner per session, and none for a dead process."""

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
from holdfast.store.clock import from_microseconds, now
from holdfast.store.lease import LEASE_SECONDS, is_abandoned, is_expired
from holdfast.store.memory import MemoryDatabase, MemoryStore
from holdfast.store.owner import Owner, is_dead, this_process
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import Lease
from tests.store.disks import FailingDisk
from tests.store.sessions import new_session, raises_code

pytestmark = pytest.mark.anyio

HOLDER = """
import asyncio, sys
from pathlib import Path
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore

async def main():
    async with SqliteStore(Path(sys.argv[1])) as store:
        await store.acquire(SessionId(sys.argv[2]))
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.promise("STO-04")
async def test_second_host_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as store:
        session_id = await new_session(store)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path, session_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"

            for write in (store.acquire(session_id), store.append(session_id, Titled(title="mine"))):
                with raises_code(codes.SESSION_HELD) as caught:
                    await write
                assert f"process {holder.pid} on " in caught.value.message

            holder.kill()
            # Not reaped: a zombie does not hold a lease.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            lease = await store.acquire(session_id)
        finally:
            holder.kill()
            holder.communicate()

        assert lease.owner == this_process()


def test_process_is_dead_if_its_pid_was_reused() -> None:
    here = this_process()

    assert is_dead(here) is False
    assert is_dead(replace(here, started="1")) is True
    assert is_dead(replace(here, pid=2**22 + 1)) is True


def test_process_from_before_the_last_boot_is_dead() -> None:
    assert is_dead(replace(this_process(), boot="earlier")) is True


def test_processes_on_other_machines_and_in_other_containers_are_unknown() -> None:
    here = this_process()

    assert is_dead(replace(here, machine="elsewhere/1")) is None
    assert is_dead(replace(here, namespace="pid:[1]")) is None
    assert is_dead(replace(here, started="")) is None


@pytest.mark.promise("STO-04")
def test_lease_of_an_unknown_process_expires_by_time() -> None:
    lease = _lease(replace(this_process(), machine="elsewhere/1"))

    assert is_expired(lease, now()) is False
    assert is_expired(lease, now() + int(LEASE_SECONDS * 1_000_000) + 1) is True


def test_lease_from_before_the_clock_was_set_back_does_not_hold_a_session_for_years() -> None:
    unknown, local = _lease(replace(this_process(), machine="elsewhere/1")), _lease(this_process())
    year = 365 * 24 * 3600 * 1_000_000

    # Set back by an hour, the lease holds on; by a year, it has ended. A live process of this machine keeps its lease.
    assert [is_expired(unknown, now() - back) for back in (year // 8760, year)] == [False, True]
    assert [is_abandoned(unknown, now() - back) for back in (year // 8760, year)] == [False, True]
    assert [is_expired(local, now() + jump) for jump in (-year, year)] == [False, False]


def test_lease_of_a_live_local_owner_never_expires() -> None:
    assert is_expired(_lease(this_process()), now() + 10**12) is False


@pytest.mark.promise("STO-04")
async def test_store_that_lost_its_lease_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as asleep, SqliteStore(path) as awake:
        session_id = await new_session(asleep)
        await asleep.acquire(session_id)
        # As if it were on another machine and did not renew its lease in time.
        await awake.write(
            lambda tx: tx._db.execute("UPDATE leases SET machine = 'elsewhere', until = 0")  # type: ignore[attr-defined]
        )
        await awake.acquire(session_id)

        with raises_code(codes.SESSION_HELD):
            await asleep.append(session_id, Titled(title="late"))

        await awake.append(session_id, Titled(title="mine"))
        await awake.release(session_id)
        with raises_code(codes.SESSION_HELD) as caught:
            await asleep.append(session_id, Titled(title="though unknown has it"))
        await asleep.acquire(session_id)
        await asleep.append(session_id, Titled(title="mine again"))
        events = [stored.event async for stored in awake.events(session_id)]

    assert "is no longer held by this process" in caught.value.message
    assert events == [Titled(title="mine"), Titled(title="mine again")]


async def test_memory_store_that_lost_its_lease_cannot_write() -> None:
    database = MemoryDatabase()
    asleep, awake = MemoryStore(database), MemoryStore(database)
    session_id = await new_session(asleep)
    dead = replace(this_process(), boot="earlier")
    database.leases[session_id] = replace(await asleep.acquire(session_id), owner=dead)
    await awake.acquire(session_id)
    await awake.release(session_id)

    with raises_code(codes.SESSION_HELD):
        await asleep.append(session_id, Titled(title="late"))


@pytest.mark.promise("STO-04")
async def test_rolled_back_lease_is_not_held(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        disk.fails_with = sqlite3.SQLITE_FULL
        with raises_code(codes.STORE_FULL):
            await store.acquire(session_id)
        disk.fails_with = 0
        await store.append(session_id, Titled(title="unknown's"))
        assert await store.write(lambda tx: tx.delete(session_id))


@pytest.mark.promise("STO-04")
async def test_lease_is_held_although_another_write_of_its_batch_failed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    async with SqliteStore(path) as asleep, SqliteStore(path) as awake:
        session_id = await new_session(asleep)
        unknown = SessionId("sess_00000000000000000000000000000000")
        done = await asyncio.gather(
            asleep.acquire(session_id),
            asleep.acquire(unknown),
            asleep.acquire(unknown),
            return_exceptions=True,
        )
        await awake.write(
            lambda tx: tx._db.execute("UPDATE leases SET boot = 'earlier'")  # type: ignore[attr-defined]
        )
        await awake.acquire(session_id)
        await awake.release(session_id)
        with raises_code(codes.SESSION_HELD):
            await asleep.append(session_id, Titled(title="late"))

    assert [isinstance(one, Exception) for one in done] == [False, True, True]


def test_lease_of_an_unknown_process_is_abandoned_after_a_day() -> None:
    asleep = _lease(replace(this_process(), machine="elsewhere/1"))
    hour = 3600 * 1_000_000

    assert [is_abandoned(asleep, now() + hours * hour) for hours in (1, 23, 25)] == [False, False, True]
    assert is_abandoned(_lease(replace(this_process(), boot="earlier")), now())
    assert not is_abandoned(_lease(this_process()), now() + 48 * hour)


async def test_idle_store_renews_its_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.writer.RENEW_SECONDS", 0.01)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        session_id = await new_session(store)
        first = await store.acquire(session_id)

        until = first.expires_at
        while until == first.expires_at:
            seen = await store.read(lambda tx: tx.lease(session_id))
            assert seen is not None
            until = seen.expires_at

        assert until > first.expires_at


async def test_releasing_one_session_keeps_the_other_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.writer.RENEW_SECONDS", 0.01)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        kept, left, deleted = [await new_session(store) for _ in range(3)]
        first = await store.acquire(kept)
        for session_id in (left, deleted):
            await store.acquire(session_id)
        await store.release(left)
        await store.write(lambda tx: tx.delete(deleted))

        async with asyncio.timeout(10):
            while (seen := await store.read(lambda tx: tx.lease(kept))) is None or (
                seen.expires_at == first.expires_at
            ):
                await asyncio.sleep(0.01)
        assert store._writer._holds_leases
        await store.release(kept)
        assert not store._writer._holds_leases


def _lease(owner: Owner) -> Lease:
    return Lease(
        session_id=SessionId("sess_0123456789abcdef"),
        holder="holder",
        owner=owner,
        expires_at=from_microseconds(now()) + timedelta(seconds=LEASE_SECONDS),
    )
