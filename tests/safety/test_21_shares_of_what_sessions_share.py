"""Attack 21, the host's own resources: one session uses up what it shares with others, or what control messages need."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.link_pool import LinkPool
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.limits import Limits
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.frame import Request
from holdfast.wire.memory import connect_memory
from holdfast.wire.peer import ACP_CANCEL, Peer
from tests.connect.conftest import HostFactory, counter_entry, make_host
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
        await host.close_session(greedy)
        await host.close_session(other)

        monkeypatch.setattr(LinkPool, "_check_limit", _only_the_total)
        greedy = await host.open(OpenOptions(cwd=tmp_path))
        await greedy.wait_ready()
        other = await host.open(OpenOptions(cwd=tmp_path, only_server="c0"))

        assert (len(greedy.refusals), len(other.refusals)) == (0, 1)  # the control


def _only_the_total(self: Any, spec: Any, owner: Any) -> None:
    from holdfast.model.errors import HoldfastError

    if sum(link.is_usable and link.spec.name != "files" for link in self._iter_links()) >= self._max_links:
        raise HoldfastError(codes.TOO_MANY_LINKS, "The limit is reached.")


@pytest.mark.parametrize("keeps_room", [True, False], ids=["attack", "control"])
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
