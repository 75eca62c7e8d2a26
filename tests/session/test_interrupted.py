"""What a kill cuts off has an end and a record of the audit once the session is taken up again, and only one of each."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.audit.record import AuditKind, hash_arguments
from holdfast.host import DATABASE, Host, Opening
from holdfast.model.event import Event, Outcome, SessionClosed, StopReason, ToolCalled, ToolEnded, TurnEnded
from holdfast.model.ids import SessionId
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import editor, environment, tools
from tests.session.test_audited import notes

__all__ = ["cwd", "home"]

pytestmark = pytest.mark.anyio

STARTED = "SELECT count(*) FROM events WHERE kind = 'ToolStarted'"
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


async def begun(home: Path, count: int) -> None:
    """Wait until so many calls run, and all of them are known on the disk to do so."""
    with closing(sqlite3.connect(home / "data" / DATABASE, timeout=10)) as other:
        async with asyncio.timeout(30):
            while other.execute(STARTED).fetchone() != (count,):
                await asyncio.sleep(0.01)


async def taken_up(home: Path, cwd: Path, session: str) -> tuple[list[Event], list[Any], bool]:
    """Take the session up and close it again: its events, the records of its calls, and whether the chain holds."""
    loaded = settings.load(home / "config.toml", environment(home))
    async with Host(settings=loaded) as host:
        again = await host.reopen(session, Opening(cwd=cwd))
        await host.close_session(again)
        events = [stored.event async for stored in host.store.events(SessionId(session))]
        kept = [note for note in await notes(host, AuditKind.CALL) if note.session_id == session]
    async with Host(settings=loaded) as host:
        anchor = FileAnchor.beside(home / "data" / DATABASE).read()
        verdict = await host.store.read(lambda reads: verify_store(reads, anchor))
    return events, kept, verdict.good


def ends(events: list[Event]) -> list[tuple[str, str]]:
    """Each end of a call, with its outcome and code; each end of a turn, with its reason."""
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
async def test_calls_of_a_turn_that_was_killed_end_as_interrupted_with_one_record_each(home: Path, cwd: Path):
    started = cwd / "started"
    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        await zed.prompt(session, '/call tools.echo {"text": "over"}')
        waiting = zed.begin_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
        await begun(home, 2)
        zed.process.kill()
        await asyncio.wait([waiting])
        waiting.exception()
        await zed.gone()

    (first, kept, good), (second, kept_then, _) = [await taken_up(home, cwd, session) for _ in range(2)]

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
    assert [(note.tool, note.outcome, note.reason) for note in kept] == [
        ("echo", "completed", ""),
        ("wait", *interrupted),
    ]
    arguments = json.dumps({"started": str(started)}, separators=(",", ":")).encode()
    assert kept[-1].arguments_hash == hash_arguments(arguments)
    assert (kept_then, good) == (kept, True)


@pytest.mark.promise("AUD-01")
async def test_calls_outside_of_any_turn_end_as_interrupted_with_one_record_each(home: Path, cwd: Path):
    started, server = cwd / "started", tools()
    servers = {"tools": {"command": server["command"], "args": server["args"]}}
    script = [sys.executable, "-c", CALLS_AND_WAITS, json.dumps(servers), str(cwd), str(started)]
    process = await asyncio.create_subprocess_exec(
        *script, stdout=asyncio.subprocess.PIPE, env=environment(home)
    )
    assert process.stdout is not None
    session = (await process.stdout.readline()).decode().strip()
    await begun(home, 2)
    process.kill()
    await process.wait()

    (first, kept, good), (second, kept_then, _) = [await taken_up(home, cwd, session) for _ in range(2)]

    assert ends(first) == ends(second) == [(Outcome.COMPLETED, ""), (Outcome.CANCELLED, "INTERRUPTED")]
    asked = [event.call_id for event in first if isinstance(event, ToolCalled)]
    assert [note.call_id for note in kept] == asked
    assert (kept_then, good) == (kept, True)
    assert isinstance(second[-1], SessionClosed)


@pytest.mark.promise("STO-03")
async def test_a_turn_that_runs_is_not_interrupted_and_one_whose_process_was_killed_is(home: Path, cwd: Path):
    started = cwd / "started"

    async def listed() -> Any:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "sessions", "list", "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=environment(home),
        )
        said, _ = await process.communicate()
        (found,) = (json.loads(line) for line in said.splitlines())
        return found["interrupted"]

    async with editor(home) as zed:
        session = await zed.new(cwd, tools())
        waiting = zed.begin_prompt(session, f"/call tools.wait {json.dumps({'started': str(started)})}")
        await begun(home, 1)
        while_it_runs = await listed()
        zed.process.kill()
        await asyncio.wait([waiting])
        waiting.exception()
        await zed.gone()
        afterwards = await listed()

    assert (while_it_runs, afterwards) == (False, True)
