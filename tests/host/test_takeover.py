"""A host that was suspended for longer than its lease, while another process took its session over."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled, event_kind
from holdfast.model.ids import SessionId
from holdfast.store.open_store import open_store
from holdfast.store.store import Store
from holdfast.store.types import Hold

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.mark.promise("SES-07")
async def test_suspended_host_whose_session_was_taken_over_writes_nothing_and_starts_no_call(
    tmp_path: Path,
) -> None:
    answer, kinds, marks = await _take_over(tmp_path)

    assert answer == codes.SESSION_HELD.name
    assert kinds == ["titled"]
    assert marks == ["before"]


@pytest.mark.slow
async def test_control_without_epochs_the_suspended_host_writes_and_calls(tmp_path: Path) -> None:
    answer, kinds, marks = await _take_over(tmp_path, "--without-epochs")

    assert answer == "completed"
    assert kinds[:4] == ["titled", "tool_called", "tool_started", "tool_ended"]
    assert marks == ["after", "before"]


async def _take_over(tmp_path: Path, *flags: str) -> tuple[str, list[str], list[str]]:
    """Suspend a host, take its session over, and resume the host.

    Returns what the host answers to a call, the kinds of the events since the takeover, and the calls that were made.
    """
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    (home / "config.toml").touch()
    async with open_store(home / "data" / "holdfast.db") as store:
        async with _host(home, folder, *flags) as host:
            session_id = SessionId(await _line(host))
            assert await _call(host, "before") == "completed"
            host.send_signal(signal.SIGSTOP)
            hold = await _acquire(store, session_id)
            taken = await store.append(hold, Titled(title="taken over"))
            host.send_signal(signal.SIGCONT)
            answer = await _call(host, "after")
        # The host has closed its session, too.
        events = [stored async for stored in store.events(session_id, after=taken.seq - 1)]
        audited = await store.read(lambda tx: [*tx.audit_rows(session_id=session_id)])

    recorded = sum(event_kind(stored.event) == "tool_ended" for stored in events)
    assert len(audited) == 1 + recorded, "the audit has one record for each call that was made"
    return answer, [event_kind(stored.event) for stored in events], sorted(os.listdir(folder))


@asynccontextmanager
async def _host(home: Path, folder: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.host.suspended_host", home, folder, *flags),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**kept, "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json")},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)


async def _acquire(store: Store, session_id: SessionId) -> Hold:
    """Acquire the session once the lease of the suspended host has ended."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.acquire(session_id)
            except HoldfastError as error:
                if error.code is not codes.SESSION_HELD:
                    raise
                await asyncio.sleep(0.02)


async def _call(host: asyncio.subprocess.Process, name: str) -> str:
    assert host.stdin is not None
    host.stdin.write(f"{name}\n".encode())
    return await _line(host)


async def _line(host: asyncio.subprocess.Process) -> str:
    assert host.stdout is not None
    return (await asyncio.wait_for(host.stdout.readline(), 30)).decode().strip()
