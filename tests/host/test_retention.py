"""How long sessions are kept, and that a wrong clock does not delete them all."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast.audit.audit import Audit
from holdfast.connect.server_log import ServerLogs
from holdfast.host.retention import Retention
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from tests.store.sessions import hold_session, reply

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


async def kept_after_start(folder: Path) -> int:
    """Clean up as a host does that starts now. Return how many sessions are left."""
    async with SqliteStore(folder / "holdfast.db") as store, Audit(store) as audit:
        await Retention(store, audit, ServerLogs(folder / "logs"), folder).clean_up(30)
        return len((await store.sessions(SessionQuery(visibility=ALL_SESSIONS))).items)


async def add_sessions(folder: Path, *days: int) -> None:
    """Store sessions that were last used this many days ago."""
    for age in days:
        async with SqliteStore(folder / "holdfast.db") as store:
            hold = await hold_session(store)
            await store.append(hold, reply(1))
            await store.release(hold)
        with closing(sqlite3.connect(folder / "holdfast.db", isolation_level=None)) as db:
            db.execute(
                "UPDATE sessions SET updated = updated - ? WHERE n = (SELECT max(n) FROM sessions)",
                (age * 86_400_000_000,),
            )


@pytest.mark.promise("STO-03")
async def test_a_wrong_clock_does_not_delete_all_sessions_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The control is a session that was used lately: then the others are deleted at once."""
    postponed, control = tmp_path / "postponed", tmp_path / "control"
    await add_sessions(postponed, 40, 41)
    await add_sessions(control, 40, 1)

    first, again = await kept_after_start(postponed), await kept_after_start(postponed)
    await add_sessions(postponed, 0)  # used while the clock is wrong
    with_new = await kept_after_start(postponed)
    marker = postponed / "deletion-postponed"
    marker.write_text((datetime.fromisoformat(marker.read_text()) - DAY).isoformat())
    a_day_later = await kept_after_start(postponed)

    assert (first, again, with_new, a_day_later) == (2, 2, 3, 1)
    assert await kept_after_start(control) == 1
    assert "holdfast sessions prune" in caplog.text


async def test_sessions_are_kept_if_the_clock_is_set_back(tmp_path: Path):
    await add_sessions(tmp_path, 1, 2)
    (tmp_path / "deletion-postponed").write_text("2999-01-01T00:00:00+00:00")

    assert await kept_after_start(tmp_path) == 2
    assert not (tmp_path / "deletion-postponed").exists()
