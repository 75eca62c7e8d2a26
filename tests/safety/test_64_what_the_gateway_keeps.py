"""Attack 64: a client, or its server, fills the gateway's memory with what outlives its requests."""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw

from holdfast.gateway import notification_queue, resource_watches
from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.event_streams import EventStream
from holdfast.gateway.offer import Offer
from holdfast.gateway.parked_calls import ModernCall, Parked, ParkedCalls
from holdfast.gateway.session_memory import SessionMemory
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.limits import CallerQuota
from holdfast.wire.mcp.eras import Era, Implementation
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from tests.gateway.running import Client, read_answer, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

MIB = 1024 * 1024
FEATURES = Path(__file__).parents[1] / "gateway" / "feature_server.py"
CLIENT = ClientInfo(
    era=Era.MODERN,
    version="2026-07-28",
    implementation=Implementation(),
    capabilities={"elicitation": {}},
    meta={},
)
LOG = Raw(b'{"data":"%b"}' % (b"x" * MIB))


async def never_read(method: str, params: Any) -> None:
    await asyncio.get_running_loop().create_future()


def quota(size: int = 32 * MIB) -> CallerQuota:
    return CallerQuota(total=4 * size, share=size)


def flooded_call(memory: SessionMemory, number: int) -> ClientCall:
    call = ClientCall({}, CLIENT, BackChannel(never_read))
    call.notifications.memory = memory
    for _ in range(number):
        call.notify("notifications/message", LOG)
    return call


async def test_what_a_slow_client_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch):
    memory, without_limit = SessionMemory(quota(), "a"), SessionMemory(quota(1 << 40), "b")
    call = flooded_call(memory, 100)
    monkeypatch.setattr(notification_queue, "MAX_QUEUED_BYTES", 1 << 40)
    control = flooded_call(without_limit, 100)

    assert (len(call.notifications), call.notifications.dropped) == (1, 99)
    assert memory.used == call.notifications.size < 2 * MIB
    assert (control.notifications.size > 100 * MIB, control.notifications.dropped) == (True, 0)
    for one in (call, control):
        one.notifications.close()
    assert (memory.used, without_limit.used) == (0, 0)


async def test_all_calls_of_a_credential_share_its_memory():
    shared = quota(4 * MIB)
    calls = [flooded_call(SessionMemory(shared, "a"), 2) for _ in range(20)]
    neighbour = flooded_call(SessionMemory(shared, "b"), 1)

    assert sum(call.notifications.size for call in calls) <= 4 * MIB
    assert len(neighbour.notifications) == 1
    for call in [*calls, neighbour]:
        call.notifications.close()
    assert shared.used == 0


async def test_equal_notifications_without_content_are_queued_once():
    queue = notification_queue.NotificationQueue(never_read)
    for _ in range(5000):
        queue.add("notifications/resources/list_changed", Raw(b"{}"))
        queue.add("notifications/prompts/list_changed", Raw(b"{}"))

    assert len(queue) == 2
    queue.close()


async def park(parked: ParkedCalls, size: int) -> bool:
    """Send a request that asks its client something. Return whether it waits."""
    call = ModernCall({}, CLIENT, BackChannel(never_read))
    call.size = size
    try:
        outcome = await parked.run(call, call.ask("elicitation/create", Raw(b"{}")))
    except HoldfastError as error:
        return "memory for requests that wait" not in error.message
    return isinstance(outcome, Parked)


async def test_requests_that_wait_for_answers_are_limited_in_bytes():
    shared, large = quota(), quota(1 << 40)
    sessions = [ParkedCalls(lambda error: error, SessionMemory(shared, "a")) for _ in range(3)]
    waiting = [await park(parked, 4 * MIB) for parked in sessions for _ in range(10)]
    control = ParkedCalls(lambda error: error, SessionMemory(large, "a"))
    control_waiting = [await park(control, 4 * MIB) for _ in range(30)]

    assert (waiting.count(True), shared.used) == (8, 32 * MIB)
    assert (control_waiting.count(True), large.used) == (30, 120 * MIB)
    for parked in [*sessions, control]:
        parked.close()
    assert (shared.used, large.used) == (0, 0)


async def test_events_for_resumption_are_limited_for_all_streams_together():
    shared = quota(2 * MIB)
    memory = SessionMemory(shared, "a")
    streams = [EventStream(number, memory=memory) for number in range(10)]
    for stream in streams:
        for _ in range(9):
            await stream.add(b"x" * 100_000)

    assert sum(stream.size for stream in streams) <= 2 * MIB + 10 * 100_000  # each keeps its last event
    for stream in streams:
        stream.forget()
    assert shared.used == 0


def test_the_server_of_a_resource_is_remembered_by_a_digest():
    offer = Offer(cast("Any", None), Era.MODERN, bare_names=True, memory=SessionMemory(quota(), "a"))
    for number in range(1100):
        offer.remember_resource(f"x://{number}" + "y" * 1000, "server")

    assert sum(map(len, offer._routes)) == 1024 * 16  # a URI would need 60 times as much


async def test_watched_resources_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    servers = {
        "news": {"command": sys.executable, "args": ["-m", "tests.gateway.feature_server", "--modern"]}
    }
    servers["news"]["cwd"] = str(FEATURES.parents[2])
    async with (
        running_gateway(tmp_path, servers=servers) as running,
        Client(running.url, running.token()) as client,
    ):

        async def subscribe(year: str) -> str:
            answer = read_answer(await client.post("resources/subscribe", {"uri": f"news://{year}"}))
            return answer.get("error", {}).get("message", "")

        too_long = await subscribe("9" * 9000)
        control = [await subscribe(f"{number}" + "9" * 1000) for number in range(5)]
        monkeypatch.setattr(resource_watches, "MAX_WATCHED_BYTES", 5000)
        refused = await subscribe("9" * 1000)

    assert (control, "already watches too many" in refused) == ([""] * 5, True)
    assert "A URI may have at most 8192 characters" in too_long
