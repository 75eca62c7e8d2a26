"""A store of version 1, written by the code of that time (see make_v1_fixture.py), is upgraded after a backup."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.verify_file import verify_file
from holdfast.model import codes
from holdfast.model.event import (
    ToolCalled,
    ToolEnded,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.trust import Trust
from holdfast.store import maintenance
from holdfast.store.end_interrupted import end_interrupted
from holdfast.store.open_store import open_read_only, open_store
from holdfast.store.owner import this_process
from holdfast.store.query import ALL_SESSIONS
from holdfast.store.types import AuditRow, SessionState
from holdfast.testing.store_contract.factories import search
from tests.store.disks import Ballast, small_disk
from tests.store.sessions import raises_code
from tests.store.v1_events import EVENTS, INTERRUPTED, SHOP

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-08")]
__all__ = ["small_disk"]

VERSION_1 = Path(__file__).parent / "v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the store of version 1, with its anchor."""
    return copy_version_1(tmp_path / "data")


def copy_version_1(folder: Path) -> Path:
    shutil.copytree(VERSION_1, folder, dirs_exist_ok=True)
    return folder / "holdfast.db"


async def test_upgraded_store_has_all_of_its_sessions_and_events(path: Path) -> None:
    async with open_store(path) as store:
        events = [stored async for stored in store.events(SHOP)]
        shop, interrupted = await store.session(SHOP), await store.session(INTERRUPTED)
        found = await search(store, "roses", ALL_SESSIONS), await search(store, "tulips", ALL_SESSIONS)
        resolution = await store.read(lambda tx: tx.resolution(SHOP))

    assert tuple(stored.event for stored in events) == EVENTS
    assert [stored.seq for stored in events] == [*range(1, 22)]
    assert {(stored.agent, stored.parent_call, stored.cause) for stored in events} == {("", "", "")}
    assert shop is not None
    assert (shop.title, shop.tags, shop.source, shop.settings, shop.state, shop.context.trust_level) == (
        "Price of roses", ("spring",), "acp", {"mode": "ask"}, SessionState.CLOSED, Trust.SANDBOXED
    )  # fmt: skip
    assert interrupted is not None
    assert (interrupted.open_turn, interrupted.state) == ("turn_3", SessionState.OPEN)
    assert found == (
        [(SHOP, "msg_3"), (SHOP, "msg_1"), (SHOP, "")],
        [(INTERRUPTED, "msg_5"), (INTERRUPTED, "")],
    )
    assert resolution == EVENTS[1]


async def test_upgraded_store_accepts_new_events(path: Path) -> None:
    async with open_store(path) as store:
        hold = await store.acquire(INTERRUPTED)
        await store.write(lambda tx: end_interrupted(tx, hold))
        await store.append(hold, ToolCalled(call_id="call_3", server="s", tool="t", arguments={}))

        kinds = [type(stored.event) async for stored in store.events(INTERRUPTED, after=4)]

    assert kinds == [ToolEnded, TurnEnded], "the call has its key from before"
    assert maintenance.check(path).problems == ()


async def test_audit_keeps_its_digests_and_approvals_are_asked_again(path: Path) -> None:
    before = _query(path, "SELECT seq, body, digest FROM audit ORDER BY seq")
    verified = verify_file(path)

    async with open_store(path) as store:
        rows = await store.read(lambda tx: [*tx.audit_rows()])
        approvals = await store.read(lambda tx: tx.approvals())

    assert rows == [AuditRow(book=0, seq=seq, body=body, digest=digest) for seq, body, digest in before]
    assert verified is not None
    assert verify_file(path) == verified
    assert (verified.problem, verified.seq, verified.anchored_seq) == ("", 5, 5)
    assert approvals == ()


async def test_backup_beside_it_is_the_store_of_version_1(path: Path) -> None:
    async with open_store(path):
        pass
    async with open_store(path):
        pass

    (backup,) = _backups(path)
    assert backup.name.startswith("holdfast.db.v1-")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert (backup.with_name(backup.name + "-anchor").read_bytes()) == (
        VERSION_1 / "holdfast.db-anchor"
    ).read_bytes()
    for query in (
        "PRAGMA user_version",
        "SELECT * FROM events",
        "SELECT * FROM approvals",
        "SELECT * FROM audit",
    ):
        assert _query(backup, query) == _query(VERSION_1 / "holdfast.db", query)
    assert verify_file(backup) == verify_file(path)


async def test_reading_commands_work_before_the_upgrade_and_change_nothing(path: Path) -> None:
    before = path.read_bytes()

    report = maintenance.check(path)
    with maintenance.open_for_reading(path) as tx:
        events = tx.events(SHOP)

    assert (report.schema, report.sessions, report.events, report.problems) == (1, 2, 25, ())
    assert tuple(stored.event for stored in events) == EVENTS
    assert (path.read_bytes(), _backups(path)) == (before, [])


async def test_store_opened_for_reading_is_upgraded(path: Path) -> None:
    async with open_read_only(path) as store:
        assert len([stored async for stored in store.events(SHOP)]) == 21

    assert len(_backups(path)) == 1


async def test_event_of_an_unknown_kind_survives_the_upgrade(path: Path) -> None:
    body = b'{ "steps" : 1.50 }'
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(
            "INSERT INTO events (session_n, seq, at, kind, body) VALUES (1, 22, 0, 'danced', ?)", (body,)
        )

    async with open_store(path) as store:
        [stored] = [stored async for stored in store.events(SHOP, after=21)]

    assert stored.event == UnknownEvent(kind="danced", body=body)
    assert maintenance.check(path).problems == ()


OPENER = """
import asyncio, sys
from holdfast.store.open_store import open_store

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with open_store(sys.argv[1]) as store:
        page = await store.read(lambda tx: len(tx.events(sys.argv[2])))
        print(page, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_processes_that_start_at_once_upgrade_it_once(path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, path, SHOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]

    assert outputs == ["21\n"] * 3
    assert len(_backups(path)) == 1
    assert (maintenance.check(path).schema, maintenance.check(path).problems) == (3, ())


async def test_nothing_is_changed_if_there_is_no_space_for_the_backup(small_disk: Path) -> None:
    path = copy_version_1(small_disk)
    with closing(sqlite3.connect(path)) as db:  # so that opening it needs no space
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        ballast = Ballast(small_disk)
        ballast.take_all()
        before = path.read_bytes()

        with raises_code(codes.STORE_FULL) as caught:
            async with open_store(path):
                pass

    assert "has to be upgraded, but the backup before that failed, so nothing was changed: No space" in (
        caught.value.message
    )
    assert (path.read_bytes(), _backups(path)) == (before, [])
    assert [name for name in os.listdir(small_disk) if "partial" in name] == []
    ballast.drop()
    async with open_store(path) as store:
        assert len([stored async for stored in store.events(SHOP)]) == 21


@pytest.mark.parametrize(("boot", "refused"), [(this_process().boot, True), ("earlier", False)])
async def test_store_that_an_earlier_version_is_using_is_not_upgraded(
    path: Path, boot: str, refused: bool
) -> None:
    owner = this_process()
    values = ("holder", owner.machine, boot, owner.namespace, owner.pid, owner.started)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("INSERT INTO leases VALUES (2, ?, ?, ?, ?, ?, ?, 0)", values)

    if refused:
        with raises_code(codes.STORE_BUSY) as caught:
            async with open_store(path):
                pass
        assert f"an earlier version of Holdfast is using it: {owner}" in caught.value.message
    else:
        async with open_store(path) as store:
            assert await store.read(lambda tx: tx.lease(INTERRUPTED)) is None
    assert len(_backups(path)) == (0 if refused else 1)


async def test_process_of_version_1_can_no_longer_hold_a_session(path: Path) -> None:
    """A process that had the file open during the upgrade cannot acquire a session: its statement fails."""
    async with open_store(path):
        pass

    with closing(sqlite3.connect(path)) as db, pytest.raises(sqlite3.IntegrityError, match=r"leases\.epoch"):
        db.execute(
            "INSERT OR REPLACE INTO leases (session_n, holder, machine, boot, namespace, pid, started, until) "
            "VALUES (1, 'h', 'm', 'b', 'n', 1, 's', 0)"
        )


def _backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.bak"))


def _query(path: Path, sql: str) -> Sequence[Any]:
    # Immutable: SQLite creates no files beside it.
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        return db.execute(sql).fetchall()
