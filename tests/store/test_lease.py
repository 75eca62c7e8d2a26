"""Leases: one live owner per session, and none for a dead process."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.event import Titled
from holdfast.model.ids import SessionId
from holdfast.store.lease import LEASE_SECONDS, is_abandoned, is_expired
from holdfast.store.owner import Owner, is_dead, this_process
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import Hold, Lease
from tests.store.disks import FailingDisk
from tests.store.sessions import hold_session, new_session, raises_code

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 17, tzinfo=UTC)

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

            with raises_code(codes.SESSION_HELD) as caught:
                await store.acquire(session_id)
            assert f"process {holder.pid} on " in caught.value.message

            holder.kill()
            # Not reaped: a zombie does not hold a lease.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            await store.acquire(session_id)
            lease = await store.read(lambda tx: tx.lease(session_id))
        finally:
            holder.kill()
            holder.communicate()

        assert lease is not None
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

    assert is_expired(lease, NOW) is False
    assert is_expired(lease, NOW + timedelta(seconds=LEASE_SECONDS)) is True


def test_lease_from_before_the_clock_was_set_back_does_not_hold_a_session_for_years() -> None:
    unknown, local = _lease(replace(this_process(), machine="elsewhere/1")), _lease(this_process())
    hour, year = timedelta(hours=1), timedelta(days=365)

    # Set back by an hour, the lease holds on; by a year, it has ended. A live process of this machine keeps its lease.
    assert [is_expired(unknown, NOW - back) for back in (hour, year)] == [False, True]
    assert [is_abandoned(unknown, NOW - back) for back in (hour, year)] == [False, True]
    assert [is_expired(local, NOW + jump) for jump in (-year, year)] == [False, False]


def test_lease_of_a_live_local_owner_never_expires() -> None:
    assert is_expired(_lease(this_process()), NOW + timedelta(days=11)) is False


@pytest.mark.promise("STO-04")
async def test_store_with_a_full_disk_acquires_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store:
        session_id = await new_session(store)
        disk.fails_with = sqlite3.SQLITE_FULL
        with raises_code(codes.STORE_FULL):
            await store.acquire(session_id)
        disk.fails_with = 0

        assert await store.read(lambda tx: tx.lease(session_id)) is None
        hold = await store.acquire(session_id)
        await store.write(lambda tx: tx.delete(hold))


@pytest.mark.promise("STO-04")
async def test_lease_is_held_although_another_write_of_its_batch_failed(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        session_id = await new_session(store)
        unknown = SessionId("sess_00000000000000000000000000000000")
        hold, *failed = await asyncio.gather(
            store.acquire(session_id), store.acquire(unknown), store.acquire(unknown), return_exceptions=True
        )

        assert isinstance(hold, Hold)
        assert [isinstance(one, Exception) for one in failed] == [True, True]
        assert (await store.append(hold, Titled(title="mine"))).seq == 1


def test_lease_of_an_unknown_process_is_abandoned_after_a_day() -> None:
    asleep = _lease(replace(this_process(), machine="elsewhere/1"))
    hour = timedelta(hours=1)

    assert [is_abandoned(asleep, NOW + hours * hour) for hours in (1, 23, 25)] == [False, False, True]
    assert is_abandoned(_lease(replace(this_process(), boot="earlier")), NOW)
    assert not is_abandoned(_lease(this_process()), NOW + 48 * hour)


async def test_idle_store_renews_its_leases(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "holdfast.db", lease_seconds=0.1) as store:
        session_id = (await hold_session(store)).session_id
        first = await store.read(lambda tx: tx.lease(session_id))

        await _wait_until_renewed(store, first)


async def test_releasing_one_session_keeps_the_other_leases(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "holdfast.db", lease_seconds=0.1) as store:
        kept, left, deleted = [await hold_session(store) for _ in range(3)]
        first = await store.read(lambda tx: tx.lease(kept.session_id))
        await store.release(left)
        await store.write(lambda tx: tx.delete(deleted))

        await _wait_until_renewed(store, first)
        assert store._writer._holds_leases
        await store.release(kept)
        assert not store._writer._holds_leases


async def _wait_until_renewed(store: SqliteStore, first: Lease | None) -> None:
    assert first is not None
    async with asyncio.timeout(10):
        while True:
            seen = await store.read(lambda tx: tx.lease(first.session_id))
            assert seen is not None
            if seen.expires_at > first.expires_at:
                return
            await asyncio.sleep(0.01)


def _lease(owner: Owner) -> Lease:
    return Lease(
        session_id=SessionId("sess_0123456789abcdef"),
        epoch=1,
        holder_id="holder",
        owner=owner,
        expires_at=NOW + timedelta(seconds=LEASE_SECONDS),
    )
