"""A host is killed: messages between its sessions are neither lost nor delivered twice, and agents end with their parent."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.event import MessageReceived, Replied, StopReason, TurnEnded
from holdfast.model.ids import SessionId
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.host.test_team import Scripted

pytestmark = pytest.mark.anyio

IS_LONG = bool(os.environ.get("HOLDFAST_LONG_TESTS"))
SESSIONS, MESSAGES, HOSTS, ROUNDS = (5, 200, 3, 3) if IS_LONG else (3, 20, 2, 1)
"""The numbers of sessions and messages are per host. All hosts of a round run at once, beside the host of the test."""


@pytest.mark.slow
@pytest.mark.promise("TEAM-03", "TEAM-09")
async def test_no_message_is_lost_doubled_or_crosses_a_limit_when_hosts_are_killed(tmp_path: Path):
    home, folder, elsewhere = tmp_path / "home", tmp_path / "garden", tmp_path / "shed"
    for path in (home, folder, elsewhere):
        path.mkdir()
    (home / "config.toml").touch()
    loaded = settings.load(home / "config.toml", {"HOLDFAST_DATA_DIR": f"{home}/data"})
    opening = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
    async with Host(settings=loaded, agent=Scripted()) as host:
        host.registry.add(folder, trust=Trust.DIRECT)
        host.registry.add(elsewhere, trust=Trust.DIRECT)
        sandboxed = replace(opening, trust=Trust.SANDBOXED)
        live = [await host.open(opening if n else sandboxed) for n in range(SESSIONS)]
        own = [session.context.session_id for session in live]
        outside = (await host.open(replace(opening, cwd=elsewhere))).context.session_id
        sent: list[str] = []
        theirs: list[str] = []
        for _ in range(ROUNDS):
            killed = await send_until_killed(home, folder, [*own, outside], live)
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
            session.deliver_messages()
            while session.is_busy:
                await asyncio.sleep(0.01)
        received = Counter[str]()
        crossed: list[str] = []
        between = set[tuple[Trust, Trust]]()
        contexts = {one.context.session_id: one.context for one in map(host.find_live, everyone) if one}
        for session_id in everyone:
            async for stored in host.store.events(SessionId(session_id)):
                if isinstance(stored.event, MessageReceived):
                    received[stored.event.message_id] += 1
                    crossed += [stored.event.message_id] if session_id == outside else []
                    sender = contexts[SessionId(stored.event.sender)]
                    between.add((sender.trust_level, contexts[SessionId(session_id)].trust_level))

    assert len(sent) >= MESSAGES * HOSTS * ROUNDS
    assert between >= {(Trust.DIRECT, Trust.DIRECT), (Trust.DIRECT, Trust.SANDBOXED)}, "a control"
    assert (Trust.SANDBOXED, Trust.DIRECT) not in between
    assert {message_id for message_id in sent if received[message_id] != 1} == set()
    assert max(received.values()) == 1
    assert crossed == []


@dataclass(frozen=True, kw_only=True)
class Killed:
    """Hosts that were killed: their sessions, and the messages that were said to be sent while they ran."""

    sessions: list[str]
    sent: list[str]


async def send_until_killed(home: Path, folder: Path, targets: list[str], own: list[Session]) -> Killed:
    """Let several hosts, and the sessions of this one, send messages to all sessions at once; then kill the other hosts."""
    others = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.host.messaging_host", str(home), str(folder), str(SESSIONS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(HOSTS)
    ]
    sessions = [name for other in others for name in (await read_line(other)).split()]
    everyone = [*targets, *sessions]

    async def read_sent(other: Process) -> list[str]:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(f"{' '.join(everyone)}\n".encode())
        sent = [await read_line(other) for _ in range(MESSAGES)]
        other.kill()
        *whole, _ = (await other.stdout.read()).decode().split("\n")
        await other.wait()
        return [*sent, *whole]

    async def send(sender: Session) -> list[str]:
        arguments = [{"session_id": target, "text": "hello"} for target in everyone]
        results = [await sender.call("team.send_message", given) for given in arguments]
        return [result.data["message_id"] for result in results if result.ok]

    sent = await asyncio.gather(*map(read_sent, others), *map(send, own))
    return Killed(sessions=sessions, sent=[message_id for some in sent for message_id in some])


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.slow
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
        opening = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
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
