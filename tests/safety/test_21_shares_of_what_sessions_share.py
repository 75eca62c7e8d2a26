"""Attack 21, the host's own resources: one session uses up what it shares with others, or what control messages need."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.acp import door
from holdfast.acp.door import EditorDoor
from holdfast.acp.messages import ClientCapabilities
from holdfast.connect.link_pool import LinkPool
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.model.process import ProcessSpec
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper import client, keeper_process
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.store import query as query_module
from holdfast.store.memory import MemoryStore
from holdfast.store.query import ALL_SESSIONS, MAX_PAGE_BYTES, SessionQuery
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.store import Store
from holdfast.testing.store_contract.factories import create_session
from holdfast.wire import incoming_requests
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import ACP_CANCEL
from holdfast.wire.messages import Raw, Request
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.peer import Peer
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.sandbox.support import PATH
from tests.wire.recording import RecordingTransport, line, recorded_peer, settle

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

FEW = Limits(in_flight=8)


async def wait_or_answer(request: Request) -> Any:
    if request.method == "wait":
        await asyncio.Event().wait()
    return {}


async def is_answered(greedy: str, other: str) -> bool:
    """Whether a request is answered while another owner waits for 20 answers."""
    client, server = Peer(limits=FEW), Peer(on_request=wait_or_answer)
    async with connect_memory(client, server):
        waiting = [asyncio.create_task(client.request("wait", owner=greedy)) for _ in range(20)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0.3):
                await client.request("answer", owner=other)
            return True
        except TimeoutError:
            return False
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_requests_of_one_session_leave_slots_for_another():
    assert await is_answered("greedy", "other")


async def test_control_requests_without_an_owner_use_all_slots():
    assert not await is_answered("", "")


class SlowTransport(RecordingTransport):
    """Lets the peer write one line at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.peer: Any = None

    def write(self, data: bytes) -> None:
        super().write(data)
        self.peer.pause_writing()


async def order_of_lines(greedy: str, other: str) -> list[str]:
    peer, transport = Peer(), SlowTransport()
    transport.peer = peer
    peer.connection_made(transport)
    sending = [asyncio.create_task(peer.request("long", owner=greedy)) for _ in range(6)]
    await asyncio.sleep(0)
    sending.append(asyncio.create_task(peer.request("short", owner=other)))
    await asyncio.sleep(0)
    for _ in range(6):
        peer.resume_writing()
        await asyncio.sleep(0)
    methods = [message["method"] for message in transport.messages]
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    await peer.close()
    return methods


async def test_unsent_lines_of_one_session_do_not_hold_up_another():
    assert (await order_of_lines("greedy", "other")).index("short") <= 2


async def test_control_without_owners_a_short_line_waits_for_all_long_ones():
    assert (await order_of_lines("", "")).index("short") == 6


async def test_session_with_many_servers_leaves_connections_for_another(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    servers = {f"c{number}": counter_entry() for number in range(4)}
    async with make_host(servers, HOLDFAST_LINKS_MAX_OPEN="4") as host:
        greedy = await host.open(OpenOptions(cwd=tmp_path))
        await greedy.wait_ready()
        other = await host.open(OpenOptions(cwd=tmp_path, only_server="c0"))

        assert (len(greedy.refusals), (await other.call("c0.count")).ok) == (2, True)
        await greedy.close()
        await other.close()

        monkeypatch.setattr(LinkPool, "_check_limit", _only_the_total)
        greedy = await host.open(OpenOptions(cwd=tmp_path))
        await greedy.wait_ready()
        other = await host.open(OpenOptions(cwd=tmp_path, only_server="c0"))
        await other.wait_ready()

        assert (len(greedy.refusals), len(other.refusals)) == (0, 1)  # the control


def _only_the_total(self: Any, spec: Any, owner: Any) -> None:
    if sum(link.is_usable and link.spec.name != "files" for link in self._iter_links()) >= self._max_links:
        raise HoldfastError(codes.TOO_MANY_LINKS, "The limit is reached.")


@pytest.mark.parametrize("keeps_room", [True, False], ids=["attack", "control"])
@pytest.mark.promise("SES-12")
async def test_threads_of_two_callers_leave_one_for_a_third(
    keeps_room: bool, monkeypatch: pytest.MonkeyPatch
):
    workers = WorkerThreads("shares", threads=8, per_owner=4)
    if not keeps_room:
        monkeypatch.setattr(workers, "_is_shared", False)
    release = threading.Event()
    blocked = [
        asyncio.create_task(workers.run(release.wait, owner=owner)) for owner in "ab" for _ in range(8)
    ]
    await asyncio.sleep(0.05)
    third = asyncio.create_task(workers.run(lambda: "done", owner="c"))
    done, _ = await asyncio.wait([third], timeout=10 if keeps_room else 0.3)
    release.set()
    await asyncio.gather(third, *blocked)

    assert bool(done) is keeps_room


# Control messages


async def test_cancellation_is_read_when_no_request_can_start():
    async with recorded_peer(on_request=wait_or_answer, cancel_method=ACP_CANCEL, limits=FEW) as (
        peer,
        transport,
    ):
        peer.data_received(b"".join(line(id=number, method="wait") for number in range(20)))
        peer.data_received(line(method=ACP_CANCEL.method, params={"requestId": 0}))
        await settle(peer)
        answers = await transport.wait_for(13)

        codes_by_id = {answer["id"]: answer["error"]["code"] for answer in answers}
        assert codes_by_id == {0: codes.CANCELLED.rpc_code} | dict.fromkeys(range(8, 20), codes.BUSY.rpc_code)


async def test_end_of_input_is_seen_when_no_request_can_start():
    async with recorded_peer(on_request=wait_or_answer, limits=FEW) as (peer, _):
        peer.data_received(b"".join(line(id=number, method="wait") for number in range(20)))
        peer.eof_received()
        async with asyncio.timeout(10):
            await peer.ended.wait()


SERVER = """
import asyncio
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_stdio

async def main():
    async def answer(request):
        return "x" * 1000
    peer = Peer(on_request=answer)
    async with connect_stdio(peer, grace=0.1):
        await peer.ended.wait()

asyncio.run(main())
"""


def test_process_ends_with_its_input_although_its_output_is_not_read():
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        written, last = 0, time.monotonic()
        while time.monotonic() - last < 0.5 and written < 100_000_000:  # until it stops reading
            try:
                written += os.write(process.stdin.fileno(), line(id=written, method="m"))
                last = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        process.stdin.close()

        assert (written < 100_000_000, process.wait(20)) == (True, 0)


# Questions to the editor


async def request_without_owner(self: Any, method: str, params: Any, *, timeout: float | None = None) -> Raw:
    return await self._peer.request(method, params, timeout=timeout)


async def asks_while_others_wait(*, sessions: int, wait_seconds: float) -> bool:
    """Whether a session's question and file request reach the editor, while the questions of others are not answered."""
    reached: dict[str, asyncio.Event] = {"fs/read_text_file": asyncio.Event()}
    reached["session/request_permission"] = asyncio.Event()

    async def answer(request: Request) -> Any:
        if b"neighbour" in bytes(request.params):
            reached[request.method].set()
        await asyncio.Event().wait()

    ours = Peer(cancel_method=ACP_CANCEL)
    editor = Peer(on_request=answer, cancel_method=ACP_CANCEL, limits=Limits(in_flight=4096))
    call = ToolCall(call_id="c", server="s", tool="t", arguments=b"{}")
    async with connect_memory(ours, editor):
        greedy = [EditorDoor(ours, ClientCapabilities(), f"greedy {number}") for number in range(sessions)]
        neighbour = EditorDoor(ours, ClientCapabilities(), "neighbour")
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(
                each.request_permission(PermissionQuestion(call=call, title="t", can_remember=True))
            )
            for each in greedy
            for _ in range(100)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        tasks.append(
            asyncio.create_task(
                neighbour.request_permission(PermissionQuestion(call=call, title="t", can_remember=True))
            )
        )
        tasks.append(asyncio.create_task(neighbour.read_text("/f")))
        try:
            async with asyncio.timeout(wait_seconds):
                for each in reached.values():
                    await each.wait()
        except TimeoutError:
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [11, 100])
async def test_unanswered_questions_of_some_sessions_do_not_keep_another_from_asking(sessions: int):
    assert await asks_while_others_wait(sessions=sessions, wait_seconds=20)


async def test_control_with_any_number_of_questions_the_others_use_all_slots(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "_MAX_QUESTIONS", 10_000)
    monkeypatch.setattr(EditorDoor, "_request", request_without_owner)

    assert not await asks_while_others_wait(sessions=11, wait_seconds=0.5)


# Answers that are not read


async def unread_bytes(
    monkeypatch: pytest.MonkeyPatch, *, limit: int, batches: int, written_at_least: int = 0
) -> int:
    """How many bytes of answers are written for a remote peer that sends 50 requests and reads nothing."""
    monkeypatch.setattr(incoming_requests, "MAX_UNREAD_BYTES", limit)

    async def answer(request: Request) -> Any:
        return {"text": "x" * 100_000}

    async with recorded_peer(on_request=answer) as (peer, transport):
        peer.pause_writing()
        for batch in range(batches):
            per_batch = 50 // batches
            peer.data_received(
                b"".join(line(id=batch * per_batch + number, method="m") for number in range(per_batch))
            )
            await settle(peer)
            for _ in range(10):
                await asyncio.sleep(0)
        await transport.wait_for(written_at_least)
        written = len(transport.written)
        peer.resume_writing()
        await transport.wait_for(50)
    return written


@pytest.mark.parametrize("batches", [1, 10], ids=["all at once", "in batches"])
async def test_answers_that_are_not_read_are_limited_in_bytes_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch, batches: int
):
    assert await unread_bytes(monkeypatch, limit=1_000_000, batches=batches) < 1_200_000


async def test_control_limited_in_number_only_the_answers_have_any_size(monkeypatch: pytest.MonkeyPatch):
    assert await unread_bytes(monkeypatch, limit=10**9, batches=1, written_at_least=25) > 2_000_000


@pytest.mark.parametrize(
    ("limit", "pages_expected"), [(MAX_PAGE_BYTES, [3, 3, 3, 1]), (10**9, [10])], ids=["attack", "control"]
)
async def test_page_of_sessions_with_long_folders_has_a_limited_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, pages_expected: list[int]
):
    monkeypatch.setattr(query_module, "MAX_PAGE_BYTES", limit)
    long_roots = tuple(f"/{number}{'d' * 4000}" for number in range(20))
    stores: list[Store] = [MemoryStore(), SqliteStore(tmp_path / "holdfast.db")]
    for each in stores:
        async with each as store:
            for _ in range(10):
                await create_session(store, roots=long_roots)
            query = SessionQuery(visibility=ALL_SESSIONS)
            pages = [await store.sessions(query)]
            while pages[-1].cursor:
                pages.append(await store.sessions(replace(query, cursor=pages[-1].cursor)))

        assert [len(page.items) for page in pages] == pages_expected


async def test_session_with_folders_that_fill_a_page_is_not_opened(make_host: HostFactory, tmp_path: Path):
    def roots(number: int) -> tuple[str, ...]:
        return tuple(f"/{index}{'d' * 4000}" for index in range(number))

    async with make_host({}) as host:
        with pytest.raises(HoldfastError, match="characters in total; the maximum is 65536"):
            await host.open(OpenOptions(cwd=tmp_path, roots=roots(20)))
        few = await host.open(OpenOptions(cwd=tmp_path, roots=roots(10)))
        page = await host.store.sessions(SessionQuery(visibility=ALL_SESSIONS))
        await few.close()

    assert [len(stored.context.roots) for stored in page.items] == [11]


async def test_built_in_servers_of_a_session_share_its_threads(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    owners: list[str] = []
    run = PARSE_THREADS.run

    async def record(function: Any, *args: Any, owner: str = "") -> Any:
        owners.append(owner)
        return await run(function, *args, owner=owner)

    monkeypatch.setattr(PARSE_THREADS, "run", record)
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        written = await session.call("files.write", {"path": "long", "text": "x\n" * 100_000})
        read = await session.call("files.read", {"path": "long"})
        session_id = session.context.session_id

    assert (written.ok, read.ok, set(owners)) == (True, True, {session_id})


# Ending many servers


COUNT_SCANS = """

_descendants_before, _scans = _descendants, {scans!r}

def _descendants(ancestor):
    with open(_scans, "a") as file:
        file.write("x")
    return _descendants_before(ancestor)

"""


async def count_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: ProcessSpec, *, group_first: bool
) -> int:
    """How often supervisors read all of /proc to end three servers."""
    scans = tmp_path / f"scans {group_first}"
    scans.write_text("")
    source = Path(keeper_process.__file__).read_text(encoding="utf-8")
    head, main = source.rsplit('if __name__ == "__main__":', 1)
    spy = COUNT_SCANS.format(scans=str(scans))
    if not group_first:
        spy += "_Supervisor._signal_group = lambda self, number: False\n\n"
    script = tmp_path / f"keeper {group_first}.py"
    script.write_text(f'{head}{spy}if __name__ == "__main__":{main}', encoding="utf-8")
    monkeypatch.setattr(client, "_SCRIPT", script)
    async with Keeper() as keeper:
        children = [await keeper.spawn(spec) for _ in range(3)]
        for child in children:
            child.terminate()
        await asyncio.gather(*(child.wait() for child in children))
        for child in children:
            child.close()
    return len(scans.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")
async def test_ending_servers_does_not_read_all_processes_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sleep = ProcessSpec(argv=("/bin/sleep", "1000"), env=PATH, cwd="/")

    # On a busy machine, a server may take longer to exit than the supervisor waits before it looks for others.
    assert 0 in [await count_scans(tmp_path, monkeypatch, sleep, group_first=True) for _ in range(2)]


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")
async def test_control_without_the_process_group_each_supervisor_reads_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sleep = ProcessSpec(argv=("/bin/sleep", "1000"), env=PATH, cwd="/")

    assert await count_scans(tmp_path, monkeypatch, sleep, group_first=False) >= 3


# A process that is suspended while it writes


WRITER = """
import asyncio, sys, time
from holdfast.store.open_store import open_store
from holdfast.store.suspension import suspend_between_transactions

def work(tx):
    tx.index_messages()
    print("writing", flush=True)
    time.sleep(0.5)

async def main():
    async with open_store(sys.argv[1]) as store:
        await store.write(work)

if "protected" in sys.argv:
    suspend_between_transactions()
asyncio.run(main())
"""


@pytest.mark.parametrize("is_protected", [True, False])
def test_process_that_is_suspended_while_it_writes_does_not_block_others(tmp_path: Path, is_protected: bool):
    arguments = [str(tmp_path / "store.db"), *(["protected"] if is_protected else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments],
        stdout=subprocess.PIPE,
        process_group=0,  # as a shell starts it: the kernel does not suspend an orphaned group
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        with closing(sqlite3.connect(tmp_path / "store.db", timeout=0.1, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                is_blocked = False
            except sqlite3.OperationalError:
                is_blocked = True
    finally:
        process.kill()
        process.communicate()

    assert (os.WIFSTOPPED(status), is_blocked) == (True, not is_protected)
