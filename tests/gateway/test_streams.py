"""Streams of handshake-era clients: a broken one is resumed after the last event that arrived."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from holdfast.gateway.event_streams import MAX_ENDED_BYTES, EventStreams, PostResponse
from holdfast.wire.http.limits import HttpLimits
from tests.gateway.conftest import RawClient, Serve, counter_entry

pytestmark = pytest.mark.anyio


async def read_events(response: aiohttp.ClientResponse, count: int) -> list[tuple[str, Any]]:
    """The next events with data: their ids and messages."""
    events: list[tuple[str, Any]] = []
    event_id = ""
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            event_id = value
        elif name == "data" and value:
            events.append((event_id, json.loads(value)))
            if len(events) == count:
                break
    return events


@pytest.mark.promise("GW-02")
async def test_a_broken_stream_is_resumed_and_its_result_arrives_once(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway, asyncio.timeout(20):
        client = RawClient(http, gateway.url)
        await client.initialize()
        params = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "t"}}
        async with client.post("tools/call", params) as broken:
            first = await read_events(broken, 1)  # the rest is not read: the connection breaks
            broken.close()
        last_id = first[0][0]

        async def resume(token: str) -> tuple[int, list[tuple[str, Any]]]:
            headers = {**client.headers, "authorization": f"Bearer {token}", "last-event-id": last_id}
            async with http.get(gateway.url, headers=headers) as resumed:
                return resumed.status, await read_events(resumed, 3) if resumed.status == 200 else []

        status, rest = await resume("anyone")
        foreign, _ = await resume("thief")

    assert status == 200
    assert foreign == 404
    assert [message.get("method", "result") for _, message in rest] == [
        "notifications/progress",
        "notifications/progress",
        "result",
    ]
    assert [message["params"]["progress"] for _, message in [*first, *rest[:2]]] == [0, 1, 2]
    assert rest[0][1]["params"]["progressToken"] == "t"


async def test_an_answer_of_the_client_reaches_the_server_and_only_from_its_own_session(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway, asyncio.timeout(20):
        client, thief = RawClient(http, gateway.url, "one"), RawClient(http, gateway.url, "two")
        await client.initialize(elicitation={})
        await thief.initialize(elicitation={})
        async with client.post("tools/call", {"name": "elicit", "arguments": {}}) as response:
            ((_, question),) = await read_events(response, 1)

            async def answer(sender: RawClient, number: int) -> int:
                content = {"action": "accept", "content": {"number": number}}
                message = {"jsonrpc": "2.0", "id": question["id"], "result": content}
                async with http.post(sender.url, json=message, headers=sender.headers) as accepted:
                    return accepted.status

            statuses = [await answer(thief, 1), await answer(client, 2)]
            ((_, result),) = await read_events(response, 1)

    assert statuses == [202, 202]
    assert question["method"] == "elicitation/create"
    assert json.loads(result["result"]["content"][0]["text"])["content"] == {"number": 2}


async def test_a_response_whose_stream_another_one_resumes_ends_with_the_call(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry()}) as gateway, asyncio.timeout(20):
        client = RawClient(http, gateway.url)
        await client.initialize(elicitation={})
        async with client.post("tools/call", {"name": "elicit", "arguments": {}}) as response:
            ((event_id, question),) = await read_events(response, 1)
            headers = {**client.headers, "last-event-id": event_id}
            async with http.get(gateway.url, headers=headers) as resumed:
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
                async with http.post(gateway.url, json=answer, headers=client.headers):
                    pass
                ((_, result),) = await read_events(resumed, 1)
            rest = await response.content.read()  # raises if the response is broken off

    assert "result" in result
    assert b"result" not in rest


async def test_a_stream_that_another_replaces_ends_at_once_and_streams_are_limited(
    serve: Serve, http: aiohttp.ClientSession
):
    limits = HttpLimits(in_flight_per_caller=2, keepalive_seconds=600.0)
    async with serve({"counter": counter_entry()}, http_limits=limits) as gateway:
        one, two, three = [RawClient(http, gateway.url) for _ in range(3)]
        for client in (one, two, three):
            await client.initialize()
        async with (
            asyncio.timeout(10),
            http.get(one.url, headers=one.headers) as first,
            http.get(one.url, headers=one.headers),
        ):
            await first.content.read()  # it ends long before the next keepalive
            async with (
                http.get(two.url, headers=two.headers) as other,
                http.get(three.url, headers=three.headers) as refused,
            ):
                assert (first.status, other.status, refused.status) == (200, 200, 429)


async def test_ended_streams_of_a_session_are_kept_within_a_limit_of_bytes():
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    streams = EventStreams(is_primed=False)
    large = b"x" * (MAX_ENDED_BYTES // 2 + 1)
    for _ in range(3):
        response = PostResponse(send, streams, can_stream=True)
        await response.send_line(large)
        await response.end()
    kept = [number for number in ("1-0", "2-0", "3-0") if streams.find(number) is not None]
    unread = streams.open()
    await unread.add(large * 3)  # no response reads it: the client's connection has broken
    await unread.end()
    streams.trim()
    kept_later = [number for number in ("3-0", "4-0") if streams.find(number) is not None]

    assert kept == ["3-0"]
    assert kept_later == ["4-0"]
