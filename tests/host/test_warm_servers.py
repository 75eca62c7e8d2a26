"""Servers that are started before a session needs them: each belongs to one session, and learns that session's context."""

import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Host, ServerConfigs, Session
from holdfast.connect import connector
from holdfast.connect.warm_pool import WarmPool
from holdfast.testing import host_of
from tests.connect.processes import is_alive, kill, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.promise("CTX-05", "LNK-01")]

SERVER = """
import os
from holdfast.toolkit import Call, Toolbox

box = Toolbox("who")
seen = []


@box.tool
def who(call: Call) -> dict[str, object]:
    '''Say who calls.'''
    seen.append(call.session.session_id)
    return {"pid": os.getpid(), "session": seen, "user": call.session.user_id, "cwd": os.getcwd()}


box.main()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "who.py"
    file.write_text(SERVER)
    return file


def servers(program: Path, **more: Any) -> ServerConfigs:
    return {"who": {"command": sys.executable, "args": [str(program)], "warm": 2, **more}}


def pool(host: Host) -> WarmPool:
    return host._parts.connector.warm_pool


@pytest.fixture
async def host(program: Path) -> AsyncIterator[Host]:
    """A host that has opened and closed one session, so that servers wait for the next ones."""
    async with host_of(who=servers(program)["who"]) as host:
        async with host.session():
            pass
        await pool(host).wait_filled()
        yield host


async def ask(session: Session) -> dict[str, Any]:
    return (await session.call("who.who")).raise_for_error().data


@pytest.mark.slow
async def test_each_session_gets_a_waiting_server_of_its_own_that_learns_only_its_context(host: Host):
    waiting = pool(host).pids
    async with host.session(user_id="ann") as ann, host.session(user_id="bob") as bob:
        answers = [await ask(session) for session in (ann, bob, ann)]
        sessions = [session.context.session_id for session in (ann, bob)]
    pids = {answer["pid"] for answer in answers}

    assert (pids, len(waiting)) == (waiting, 2)
    assert [(answer["user"], answer["session"]) for answer in answers] == [
        ("ann", [sessions[0]]),
        ("bob", [sessions[1]]),
        ("ann", [sessions[0]] * 2),
    ]
    await wait_until(lambda: not any(map(is_alive, pids)))
    await pool(host).wait_filled()
    assert (len(pool(host).pids), pool(host).pids & waiting) == (2, frozenset())


async def test_waiting_servers_end_with_the_host(program: Path):
    async with host_of(who=servers(program)["who"]) as host:
        async with host.session() as session:
            pid = (await ask(session))["pid"]
        await pool(host).wait_filled()
        waiting = pool(host).pids
        assert (len(waiting), pid in waiting) == (2, False)

    assert not any(map(is_alive, waiting))


@pytest.mark.slow
async def test_server_whose_program_was_changed_is_started_anew(host: Host, program: Path):
    program.write_text(SERVER.replace('"cwd": os.getcwd()', '"cwd": "changed"'))

    async with host.session() as session:
        assert (await ask(session))["cwd"] == "changed"


@pytest.mark.slow
async def test_waiting_server_that_was_killed_is_replaced(host: Host):
    for pid in pool(host).pids:
        kill(pid)

    async with host.session(user_id="ann") as session:
        assert (await ask(session))["user"] == "ann"


@pytest.mark.slow
async def test_waiting_server_that_fails_is_not_called_shared(
    program: Path, caplog: pytest.LogCaptureFixture
):
    fail = "import os, sys\nif os.environ.get('HOLDFAST_SHARED'):\n    sys.exit(sys.stdin.readline() and 3)\n"
    program.write_text(fail + SERVER)
    async with host_of(who=servers(program, warm=1)["who"]) as host:
        async with host.session():
            pass
        await pool(host).wait_filled()
        async with host.session(user_id="ann") as session:
            assert (await ask(session))["user"] == "ann"

    (warned,) = [text for text in caplog.messages if "started in advance, failed" in text]
    assert "share" not in warned


PLAIN = """
import json, os, sys

for line in sys.stdin:
    request = json.loads(line)
    results = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"},
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}], "resultType": "complete"},
    }
    said = {"content": [{"type": "text", "text": os.environ.get("HOLDFAST_USER_ID", "?")}], "resultType": "complete"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": results.get(request["method"], said)}), flush=True)
"""


async def test_server_that_reads_its_context_from_the_environment_is_never_started_in_advance(
    program: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    logger = logging.getLogger("holdfast.connect.connector")
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "level", logging.WARNING)
    # Other tests may have changed the logger's parents.
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    said, waiting = await ask_plain(program)

    assert (said, waiting) == (["ann", "bob"], 0)
    assert "who cannot be started in advance: it does not read the session context" in caplog.messages


async def test_control_without_the_check_a_session_gets_a_server_without_its_context(
    program: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connector, "reads_context", bool)

    assert await ask_plain(program) == (["ann", "?"], 2)


async def ask_plain(program: Path) -> tuple[list[str], int]:
    """What a server that reads its environment says to two users, and how many of its processes wait then."""
    program.write_text(PLAIN)
    said: list[str] = []
    async with host_of(who=servers(program)["who"]) as host:
        for user in ("ann", "bob"):
            async with host.session(user_id=user) as session:
                said.append((await session.call("who.who")).text)
            await pool(host).wait_filled()
        return said, len(pool(host).pids)
