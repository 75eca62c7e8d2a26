"""Requests and notifications from an HTTP server to the client of a session."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.messages_to_client import MAX_QUEUED, MAX_WAITING_REQUESTS, MessagesToClient
from holdfast.wire.messages import ErrorBody, ErrorResponse, PeerError, Raw, Response

pytestmark = pytest.mark.anyio


class Stream:
    """Records what is sent to the client."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def __call__(self, line: bytes) -> None:
        self.sent.append(json.loads(line))


async def test_request_gets_the_answer_with_its_id():
    channel, stream = MessagesToClient(), Stream()
    asking = [asyncio.ensure_future(channel.ask(stream, "roots/list", {})) for _ in range(2)]
    while len(stream.sent) < 2:
        await asyncio.sleep(0)

    channel.receive(Response(id="unknown", result=Raw(b"0")))
    channel.receive(Response(id=stream.sent[1]["id"], result=Raw(b"2")))
    channel.receive(Response(id=stream.sent[0]["id"], result=Raw(b"1")))
    channel.receive(Response(id=stream.sent[0]["id"], result=Raw(b"3")))

    assert [bytes(answer) for answer in await asyncio.gather(*asking)] == [b"1", b"2"]


async def test_error_of_the_client_is_raised():
    channel, stream = MessagesToClient(), Stream()
    asking = asyncio.ensure_future(channel.ask(stream, "roots/list", {}))
    while not stream.sent:
        await asyncio.sleep(0)

    channel.receive(ErrorResponse(id=None, error=ErrorBody(code=-1)))
    channel.receive(ErrorResponse(id=stream.sent[0]["id"], error=ErrorBody(code=-5, message="no")))

    with pytest.raises(PeerError, match="no") as raised:
        await asking
    assert raised.value.rpc_code == -5


async def test_open_requests_are_limited_and_end_with_the_session():
    channel, stream = MessagesToClient(), Stream()
    asking = [
        asyncio.ensure_future(channel.ask(stream, "roots/list", {})) for _ in range(MAX_WAITING_REQUESTS)
    ]
    while len(stream.sent) < MAX_WAITING_REQUESTS:
        await asyncio.sleep(0)

    with pytest.raises(HoldfastError) as refused:
        await channel.ask(stream, "roots/list", {})
    channel.end()
    ended = await asyncio.gather(*asking, return_exceptions=True)

    assert refused.value.code is codes.BUSY
    assert {error.code for error in ended if isinstance(error, HoldfastError)} == {codes.CONNECTION_CLOSED}


async def test_client_that_does_not_answer_is_not_waited_for():
    with pytest.raises(HoldfastError, match=r"within 0\.01 s") as raised:
        await MessagesToClient().ask(Stream(), "roots/list", {}, timeout=0.01)

    assert raised.value.code is codes.TIMEOUT


async def test_newest_notifications_wait_for_the_stream():
    channel = MessagesToClient()
    for number in range(MAX_QUEUED + 1):
        await channel.push("notifications/x", {"number": number})

    kept = [json.loads(line)["params"]["number"] for line in channel.take_queued()]

    assert kept == list(range(1, MAX_QUEUED + 1))
    assert (channel.has_queued.is_set(), channel.take_queued()) == (False, [])
