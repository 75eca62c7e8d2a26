"""A host is killed: messages between its sessions are neither lost nor delivered twice, and agents end with their parent."""

import asyncio
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.event import MessageReceived, Replied, StopReason, TurnEnded
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from tests.host.test_team import Scripted

pytestmark = pytest.mark.anyio

IS_LONG = bool(os.environ.get("HOLDFAST_LONG_TESTS"))
SESSIONS, MESSAGES, KILLS = (5, 200, 3) if IS_LONG else (4, 40, 1)
"""In each host; with those of the host that is not killed, 20 sessions in the long version."""


@pytest.mark.promise("TEAM-03", "TEAM-09")
async def test_no_message_is_lost_doubled_or_crosses_workspaces_when_hosts_are_killed(tmp_path: Path):
    home, folder, elsewhere = tmp_path / "home", tmp_path / "garden", tmp_path / "shed"
    for path in (home, folder, elsewhere):
        path.mkdir()
    (home / "config.toml").touch()
    loaded = settings.load(home / "config.toml", {"HOLDFAST_DATA_DIR": f"{home}/data"})
    opening = OpenOptions(cwd=folder, on_request=AGENT_SERVERS, mode=Mode.AUTO)
    async with Host(settings=loaded, agent=Scripted()) as host:
        host.registry.add(folder, trust=Trust.DIRECT)
        host.registry.add(elsewhere, trust=Trust.DIRECT)
        own = [(await host.open(opening)).context.session_id for _ in range(SESSIONS)]
        outside = (await host.open(replace(opening, cwd=elsewhere))).context.session_id
        sent: list[str] = []
        theirs: list[str] = []
        for _ in range(KILLS):
            killed = await send_until_killed(home, folder, [*own, outside])
            theirs += killed.sessions
            sent += killed.sent

        everyone = [
            *own,
            outside,
            *[(await host.reopen(session_id, opening)).context.session_id for session_id in theirs],
        ]
        for session_id in everyone:
            session = host.find_live(session_id)
            assert session is not None
            session.notice_messages()
            while session.is_busy:
                await asyncio.sleep(0.01)
        received = Counter[str]()
        crossed: list[str] = []
        for session_id in everyone:
            async for stored in host.store.events(session_id):
                if isinstance(stored.event, MessageReceived):
                    received[stored.event.message_id] += 1
                    crossed += [stored.event.message_id] if session_id == outside else []

    assert len(sent) >= MESSAGES * KILLS
    assert {message_id for message_id in sent if received[message_id] != 1} == set()
    assert max(received.values()) == 1
    assert crossed == []


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A host that was killed: its sessions, and the messages that it said to have sent."""

    sessions: list[str]
    sent: list[str]


async def send_until_killed(home: Path, folder: Path, targets: list[str]) -> Killed:
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.host.messaging_host", str(home), str(folder), str(SESSIONS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    sessions = (await other.stdout.readline()).decode().split()
    other.stdin.write(f"{' '.join([*targets, *sessions])}\n".encode())
    sent = [(await other.stdout.readline()).decode().strip() for _ in range(MESSAGES)]
    other.kill()
    *whole, _ = (await other.stdout.read()).decode().split("\n")
    await other.wait()
    return Killed(sessions=sessions, sent=[*sent, *whole])


@pytest.mark.promise("TEAM-11")
async def test_a_parent_that_crashes_ends_its_children_and_their_results_are_kept(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "garden"
    home.mkdir()
    folder.mkdir()
    (home / "config.toml").touch()
    loaded = settings.load(home / "config.toml", {"HOLDFAST_DATA_DIR": f"{home}/data"})
    async with Host(settings=loaded, agent=Scripted()) as host:
        host.registry.add(folder, trust=Trust.DIRECT)
    crashing = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.host.crashing_parent", str(home), str(folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert crashing.stdout is not None
    ids = (await crashing.stdout.readline()).decode().split()
    crashing.kill()
    await crashing.wait()

    async with Host(settings=loaded, agent=Scripted()) as host:
        live_before = [host.find_live(session_id) for session_id in ids]
        opening = OpenOptions(cwd=folder, on_request=AGENT_SERVERS, mode=Mode.AUTO)
        parent, *children = [await host.reopen(session_id, opening) for session_id in ids]
        events = {
            session.context.session_id: [
                stored async for stored in host.store.events(session.context.session_id)
            ]
            for session in (parent, *children)
        }
        again = [await child.prompt("Go on.") for child in children]

    assert len(ids) == 3
    assert live_before == [None] * 3, "none of them runs on without its parent"
    for stored in events.values():
        reasons = [one.event.reason for one in stored if isinstance(one.event, TurnEnded)]
        assert reasons == [StopReason.INTERRUPTED]
    for child in children:
        replies = [
            one.event.text for one in events[child.context.session_id] if isinstance(one.event, Replied)
        ]
        assert replies == ["Half of the work is done."]
    of_sub_agent = [one.event for one in events[parent.context.session_id] if one.agent]
    assert Replied in {type(event) for event in of_sub_agent}, "what the sub-agent said is kept"
    assert [result.reason for result in again] == [StopReason.END_TURN] * 2
