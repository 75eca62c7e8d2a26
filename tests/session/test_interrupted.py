"""Turns and calls of a killed process get exactly one end and one audit record."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind
from holdfast.host.data_folder import DATABASE_FILE, KEYS_FOLDER
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.event import Event, Outcome, SessionClosed, StopReason, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.store.sqlite.anchor import FileAnchor
from tests.commands import run_holdfast
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import Editor, editor, environment, tools_server
from tests.session.support import audit_records, prompt_until_full
from tests.store.disks import Ballast, small_disk

__all__ = ["cwd", "home", "small_disk"]

pytestmark = pytest.mark.anyio

STARTED = "SELECT count(*) FROM events WHERE kind = 'tool_started'"
CALLS_AND_WAITS = """
import asyncio, json, sys
from pathlib import Path
from holdfast import Host

async def main():
    servers, cwd, started = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    async with Host(servers=servers) as host, host.session(cwd=cwd) as session:
        print(session.context.session_id, flush=True)
        await session.call("tools.echo", {"text": "over"})
        await session.call("tools.wait", {"started": started})

asyncio.run(main())
"""


async def wait_started(home: Path, count: int) -> None:
    """Wait until the start of this many calls is on disk."""
    with closing(sqlite3.connect(home / "data" / DATABASE_FILE, timeout=10)) as other:
        async with asyncio.timeout(30):
            while other.execute(STARTED).fetchone() != (count,):
                await asyncio.sleep(0.01)


async def reopen(home: Path, cwd: Path, session: str) -> tuple[list[Event], list[Any], bool]:
    """Reopen the session and close it: its events, the audit records of its calls, and whether the chain is intact."""
    loaded = settings.load(home / "config.toml", environment(home))
    async with Host(settings=loaded) as host:
        again = await host.reopen(session, OpenOptions(cwd=cwd))
        await again.close()
        events = [stored.event async for stored in host.store.events(SessionId(session))]
        records = [
            record for record in await audit_records(host, AuditKind.CALL) if record.session_id == session
        ]
    async with Host(settings=loaded) as host:
        anchor = FileAnchor.for_database(home / "data" / DATABASE_FILE).read()
        verdict = await host.store.read(lambda tx: verify_store(tx, anchor))
    return events, records, verdict.is_intact


def ends(events: list[Event]) -> list[tuple[str, str]]:
    """The outcome and code of each call, and the reason of each turn's end."""
    found: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ToolEnded(outcome=outcome, code=code):
                found.append((outcome, code))
            case TurnEnded(reason=reason):
                found.append(("turn", reason))
            case _:
                pass
    return found


@pytest.mark.promise("AUD-01", "STO-03")
async def test_calls_of_a_killed_turn_end_as_interrupted_with_one_record_each(home: Path, cwd: Path):
    started = cwd / "started"
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        await zed.prompt(session, '/call tools.echo {"text": "over"}')
        waiting = zed.start_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
        await wait_started(home, 2)
        zed.process.kill()
        await asyncio.wait([waiting])
        waiting.exception()
        await zed.wait_ended()

    (first, records, good), (second, records_later, _) = [await reopen(home, cwd, session) for _ in range(2)]

    interrupted = (Outcome.CANCELLED, "INTERRUPTED")
    assert (
        ends(first)
        == ends(second)
        == [
            (Outcome.COMPLETED, ""),
            ("turn", StopReason.END_TURN),
            interrupted,
            ("turn", StopReason.INTERRUPTED),
        ]
    )
    assert [(record.tool, record.outcome, record.reason) for record in records] == [
        ("echo", "completed", ""),
        ("wait", *interrupted),
    ]
    arguments = json.dumps({"started": str(started)}, separators=(",", ":")).encode()
    assert records[-1].arguments_hash == ArgumentHasher(home / "data" / KEYS_FOLDER)(arguments)
    assert (records_later, good) == (records, True)


@pytest.mark.slow
@pytest.mark.promise("AUD-01")
async def test_killed_calls_outside_of_a_turn_end_as_interrupted_with_one_record_each(home: Path, cwd: Path):
    started, server = cwd / "started", tools_server()
    servers = {"tools": {"command": server["command"], "args": server["args"]}}
    script = [sys.executable, "-c", CALLS_AND_WAITS, json.dumps(servers), str(cwd), str(started)]
    process = await asyncio.create_subprocess_exec(
        *script, stdout=asyncio.subprocess.PIPE, env=environment(home)
    )
    assert process.stdout is not None
    session = (await process.stdout.readline()).decode().strip()
    await wait_started(home, 2)
    process.kill()
    await process.wait()

    (first, records, good), (second, records_later, _) = [await reopen(home, cwd, session) for _ in range(2)]

    assert ends(first) == ends(second) == [(Outcome.COMPLETED, ""), (Outcome.CANCELLED, "INTERRUPTED")]
    called = [event.call_id for event in first if isinstance(event, ToolCalled)]
    assert [record.call_id for record in records] == called
    assert (records_later, good) == (records, True)
    assert isinstance(second[-1], SessionClosed)


@pytest.mark.slow
@pytest.mark.promise("STO-03")
async def test_running_turn_is_not_listed_as_interrupted_and_a_killed_one_is(home: Path, cwd: Path):
    started = cwd / "started"

    async def listed() -> Any:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "sessions", "list", "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=environment(home),
        )
        output, _ = await process.communicate()
        (found,) = (json.loads(line) for line in output.splitlines())
        return found["interrupted"]

    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server())
        waiting = zed.start_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
        await wait_started(home, 1)
        while_it_runs = await listed()
        zed.process.kill()
        await asyncio.wait([waiting])
        waiting.exception()
        await zed.wait_ended()
        afterwards = await listed()

    assert (while_it_runs, afterwards) == (False, True)


async def start_waiting_call(zed: Editor, cwd: Path) -> tuple[str, "asyncio.Future[Any]"]:
    """Open a session and start a call that does not end by itself."""
    started = cwd / "started"
    session = await zed.new(cwd, tools_server())
    prompt = zed.start_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
    while not started.exists():
        await asyncio.sleep(0.01)
    return session, prompt


async def kill_during_call(home: Path, cwd: Path) -> str:
    """Open a session whose process is killed during a call."""
    async with editor(home) as zed:
        session, prompt = await start_waiting_call(zed, cwd)
        zed.process.kill()
        await asyncio.wait([prompt])
        prompt.exception()
        await zed.wait_ended()
    return session


def holdfast(home: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*arguments, env=environment(home, environ))


def calls_of(home: Path, session: str, **environ: str) -> list[tuple[str, str, str]]:
    said = holdfast(home, "audit", "list", "--json", "--session", session, **environ).stdout
    records = [json.loads(line)["record"] for line in said.splitlines()]
    return [(one["tool"], one["outcome"], one["reason"]) for one in records if one["kind"] == "call"]


INTERRUPTED = [("wait", "cancelled", "INTERRUPTED")]


@pytest.mark.slow
@pytest.mark.promise("AUD-01", "STO-03")
async def test_interrupted_call_is_recorded_by_the_next_process_without_opening_the_session(
    home: Path, cwd: Path
) -> None:
    session = await kill_during_call(home, cwd)
    before = calls_of(home, session)
    async with editor(home):
        async with asyncio.timeout(20):
            while not (records := calls_of(home, session)):
                await asyncio.sleep(0.1)
    async with editor(home) as zed:
        await zed.load(session, cwd)
        replayed = zed.reply_text(session)
        reason = await zed.prompt(session, "/help")

    assert (before, records, calls_of(home, session)) == ([], INTERRUPTED, INTERRUPTED)
    assert ("This turn was interrupted" in replayed, reason) == (True, "end_turn")
    assert holdfast(home, "audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.promise("AUD-01")
@pytest.mark.parametrize("change", ["delete", "move"])
async def test_interrupted_call_is_recorded_before_its_session_is_changed(
    home: Path, cwd: Path, tmp_path: Path, change: str
) -> None:
    session = await kill_during_call(home, cwd)
    more = ["--yes"] if change == "delete" else [str(tmp_path)]
    done = holdfast(home, "sessions", change, session, *more)

    assert (done.returncode, calls_of(home, session)) == (0, INTERRUPTED), done.stderr
    assert holdfast(home, "audit", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.promise("AUD-01", "ACP-10")
async def test_interrupted_call_is_recorded_before_an_editor_deletes_its_session(
    home: Path, cwd: Path
) -> None:
    session = await kill_during_call(home, cwd)
    async with editor(home) as zed:
        await zed.request("session/delete", {"sessionId": session})

    assert calls_of(home, session) == INTERRUPTED


@pytest.mark.slow
@pytest.mark.promise("AUD-01", "STO-03")
async def test_call_of_a_process_that_ended_on_a_full_disk_is_recorded_by_the_next_process(
    home: Path, cwd: Path, small_disk: Path
) -> None:
    ballast, environ = Ballast(small_disk), {"HOLDFAST_DATA_DIR": str(small_disk)}
    async with editor(home, environ=environ) as zed:
        session, prompt = await start_waiting_call(zed, cwd)
        other = await zed.new(cwd)
        ballast.take_all()
        await prompt_until_full(zed, other)
        code = await zed.disconnect()
        await asyncio.wait([prompt])
        prompt.exception()
    listed = holdfast(home, "sessions", "list", "--json", **environ).stdout
    before = calls_of(home, session, **environ)
    ballast.drop()
    async with editor(home, environ=environ), asyncio.timeout(20):
        while not (records := calls_of(home, session, **environ)):
            await asyncio.sleep(0.1)

    assert (code, session in listed, before, records) == (0, True, [], INTERRUPTED)
    assert holdfast(home, "audit", "verify", **environ).returncode == 0
