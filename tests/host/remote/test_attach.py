"""Attach to a session that another process has open."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.host.remote.client import AttachRequest, RemoteSession, attach_to_owner
from holdfast.host.remote.sockets import SOCKETS_FOLDER, open_listening_socket
from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Event, PermissionDecided, Prompted, Replied, StopReason, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.store.types import StoredEvent
from tests.host.remote.owner_process import Owner, open_owner

pytestmark = pytest.mark.anyio

WRITE = '/call files.write {"path": "plants.txt", "text": "Water them."}'


@dataclass
class Watcher:
    """A door that keeps what it is shown, and answers questions when it is told to."""

    capabilities: DoorCapabilities = field(default_factory=lambda: DoorCapabilities(permission=True))
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answer: "asyncio.Future[Decision]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)

    async def show(self, events: Sequence[StoredEvent]) -> None:
        self.events += events

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.asked.set()
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def sample(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def read_text(self, path: str) -> str:
        raise NotImplementedError

    async def write_text(self, path: str, text: str) -> None:
        raise NotImplementedError

    def seen(self, kind: type[Event]) -> list[Event]:
        return [stored.event for stored in self.events if isinstance(stored.event, kind)]


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    async with open_owner(tmp_path) as opened:
        yield opened


@asynccontextmanager
async def attach(owner: Owner, door: Watcher, *, may_answer: bool = True) -> AsyncIterator[RemoteSession]:
    async with attach_to_owner(
        owner.data,
        owner.lease,
        door=door,
        on_events=door.show,
        request=AttachRequest(door=DoorKind.CHAT, may_answer=may_answer),
    ) as remote:
        yield remote


@pytest.mark.promise("SES-01")
async def test_process_that_attaches_sees_the_past_and_prompts(owner: Owner):
    await owner.prompt("/servers")
    assert await owner.wait_answered() == StopReason.END_TURN
    door = Watcher()

    async with attach(owner, door) as remote:
        result = await remote.prompt([{"type": "text", "text": "/tools"}])

    assert result.reason is StopReason.END_TURN
    assert door.events[-1].seq == result.last_seq
    assert [stored.seq for stored in door.events if not isinstance(stored.event, Prompted)] == sorted(
        {stored.seq for stored in door.events if not isinstance(stored.event, Prompted)}
    )
    assert len(door.seen(Prompted)) == 1  # the owner's prompt; this process shows its own prompt itself
    assert "files.write" in "".join(event.text for event in door.seen(Replied) if isinstance(event, Replied))


@pytest.mark.slow
@pytest.mark.promise("SES-03")
async def test_question_is_answered_by_either_of_two_attached_processes(owner: Owner):
    first, second = Watcher(), Watcher()
    async with attach(owner, first), attach(owner, second):
        await owner.prompt(WRITE)
        await asyncio.gather(first.asked.wait(), second.asked.wait())

        second.answer.set_result(Decision.ALLOW_ONCE)

        assert await owner.wait_answered() == StopReason.END_TURN
        await first.withdrawn.wait()
    decided = PermissionDecided(call_id=_call_id(first), decision=Decision.ALLOW_ONCE)
    assert first.seen(PermissionDecided) == second.seen(PermissionDecided) == [decided]


@pytest.mark.slow
@pytest.mark.promise("SES-03")
async def test_process_that_is_gone_while_it_is_asked_changes_nothing_for_the_other(owner: Owner):
    first, second = Watcher(), Watcher()
    async with attach(owner, second):
        async with attach(owner, first):
            await owner.prompt(WRITE)
            await asyncio.gather(first.asked.wait(), second.asked.wait())
        second.answer.set_result(Decision.ALLOW_ONCE)

        assert await owner.wait_answered() == StopReason.END_TURN

    assert [event.outcome for event in second.seen(ToolEnded) if isinstance(event, ToolEnded)] == [
        "completed"
    ]


@pytest.mark.promise("SES-03")
async def test_process_that_may_not_answer_is_not_asked(owner: Owner):
    door = Watcher()
    async with attach(owner, door, may_answer=False):
        await owner.prompt(WRITE)
        assert await owner.wait_answered() == StopReason.END_TURN
        await _until(lambda: bool(door.seen(ToolEnded)))

    assert not door.asked.is_set()
    assert [event.outcome for event in door.seen(ToolEnded) if isinstance(event, ToolEnded)] == ["refused"]


async def test_process_that_only_watches_can_change_nothing(owner: Owner):
    refused: list[str] = []
    async with attach(owner, Watcher(), may_answer=False) as remote:
        for attempt in (
            remote.prompt([{"type": "text", "text": WRITE}]),
            remote.change_mode(Mode.READ_ONLY),
            remote.lower_trust(),
            remote.cancel(),
        ):
            with pytest.raises(HoldfastError) as error:
                await attempt
            refused.append(error.value.code.name)
        described = await remote.describe()

    assert (refused, described.mode) == (["NOT_GRANTED"] * 4, "ask")


async def test_attached_process_learns_that_the_owner_has_ended(owner: Owner):
    async with attach(owner, Watcher()) as remote:
        owner.process.send_signal(signal.SIGKILL)
        await remote.ended.wait()

        with pytest.raises(HoldfastError) as refused:
            await remote.prompt([{"type": "text", "text": "/tools"}])
    assert refused.value.code is codes.CONNECTION_CLOSED


async def test_owner_that_does_not_answer_holds_the_session(owner: Owner):
    (owner.data / SOCKETS_FOLDER / owner.lease.holder_id).unlink()

    with pytest.raises(HoldfastError) as refused:
        async with attach(owner, Watcher()):
            pass

    assert refused.value.code is codes.SESSION_HELD


@pytest.mark.promise("SES-01")
async def test_only_the_user_can_open_the_folder_and_the_socket(owner: Owner):
    folder = owner.data / SOCKETS_FOLDER

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / owner.lease.holder_id)]

    assert modes == [0o700, 0o600]


def test_no_host_listens_in_a_folder_that_others_can_open(tmp_path: Path):
    folder = tmp_path / SOCKETS_FOLDER
    folder.mkdir(mode=0o755)

    with pytest.raises(HoldfastError, match="not a folder that only you can open"):
        open_listening_socket(tmp_path, "name")

    assert [*folder.iterdir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.promise("SES-01")
async def test_process_of_another_user_is_refused_even_if_it_can_open_the_socket(owner: Owner):
    folder = owner.data / SOCKETS_FOLDER
    folder.chmod(0o711)
    (folder / owner.lease.holder_id).chmod(0o666)

    # Control: the owner's own user.
    assert await _connect_as(os.geteuid(), folder, owner.lease.holder_id) == b"open"
    assert await _connect_as(65534, folder, owner.lease.holder_id) == b""


async def _connect_as(uid: int, folder: Path, name: str) -> bytes:
    """Connect as this user and send a request: `open` if it is answered, nothing if the connection is closed."""
    script = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[1]))\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[2])\n"
        "try:\n"
        '    s.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"describe"}\\n\')\n'
        "    print('open' if s.recv(100) else '', end='')\n"
        "except OSError:\n"
        "    pass\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", script, str(uid), name), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out


async def _until(condition: "object") -> None:
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0.01)


def _call_id(door: Watcher) -> str:
    return next(
        event.call_id for event in door.seen(PermissionDecided) if isinstance(event, PermissionDecided)
    )
