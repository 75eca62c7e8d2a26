"""A peer whose remote peer is slow, blocked, hostile or cancels at once."""

import asyncio
import logging
import os
import subprocess
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.incoming_requests import ACP_CANCEL, MCP_CANCEL, CancelMethod
from holdfast.wire.messages import PeerError, Request
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes
from tests.wire.recording import line, recorded_peer, settle

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("cancel_method", [MCP_CANCEL, ACP_CANCEL], ids=["mcp", "acp"])
async def test_request_that_is_cancelled_at_once_frees_its_slot(cancel_method: CancelMethod):
    both = asyncio.Barrier(2)

    async def meet(request: Request) -> Any:
        await both.wait()

    async with recorded_peer(on_request=meet, cancel_method=cancel_method, limits=Limits(in_flight=2)) as (
        peer,
        transport,
    ):
        for number in range(10):
            cancellation = line(method=cancel_method.method, params={"requestId": number})
            peer.data_received(line(id=number, method="m") + cancellation)
            async with asyncio.timeout(10):
                while peer._incoming._tasks or not peer._receiver.is_idle:
                    await asyncio.sleep(0)
        peer.data_received(line(id="one", method="m") + line(id="other", method="m"))

        answered, count = list[Any](), 2
        while len(answered) < 2:  # the cancelled requests may also be answered
            messages = await transport.wait_for(count)
            answered = [message for message in messages if message["id"] in ("one", "other")]
            count = len(messages) + 1
    assert [message["result"] for message in answered] == [None, None]


async def test_acp_request_that_is_cancelled_before_it_starts_is_answered_as_cancelled():
    async def wait(request: Request) -> Any:
        await asyncio.Event().wait()

    async with recorded_peer(on_request=wait, cancel_method=ACP_CANCEL) as (peer, transport):
        peer.data_received(line(id=1, method="m") + line(method=ACP_CANCEL.method, params={"requestId": 1}))

        (answer,) = await transport.wait_for(1)
    assert answer["error"]["code"] == codes.CANCELLED.rpc_code


async def test_error_message_with_invalid_unicode_is_still_sent():
    async def fail(request: Request) -> Any:
        raise HoldfastError(codes.BAD_ARGUMENT, f"There is no file {os.fsdecode(b'a' + bytes([255]))}.")

    async with recorded_peer(on_request=fail) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        (answer,) = await transport.wait_for(1)
    assert answer["error"] == {"code": codes.BAD_ARGUMENT.rpc_code, "message": "There is no file a?."}


async def test_error_that_cannot_be_encoded_is_an_internal_error(caplog: pytest.LogCaptureFixture):
    async def fail(request: Request) -> Any:
        raise PeerError(-32042, "later", object())

    caplog.set_level(logging.CRITICAL)
    async with recorded_peer(on_request=fail) as (peer, transport):
        peer.data_received(line(id=1, method="m"))

        (answer,) = await transport.wait_for(1)
    assert answer["error"] == {"code": codes.INTERNAL_ERROR.rpc_code, "message": "Internal error."}


async def test_request_that_times_out_before_it_is_sent_is_never_sent():
    async with recorded_peer() as (peer, transport):
        peer.pause_writing()
        with pytest.raises(HoldfastError, match="not answered within"):
            await peer.request("m", timeout=0.001)
        peer.resume_writing()
        await peer.notify("n")

        assert [message["method"] for message in transport.messages] == ["n"]


async def test_request_that_waits_to_be_sent_fails_at_the_end_of_input():
    async with recorded_peer() as (peer, _):
        peer.pause_writing()
        pending = asyncio.create_task(peer.request("m"))
        await asyncio.sleep(0)
        peer.eof_received()

        with pytest.raises(HoldfastError, match="closed the connection"):
            await pending


@pytest.mark.parametrize("is_pending", [False, True])
async def test_errors_for_invalid_lines_are_limited_while_they_are_not_read(is_pending: bool):
    async with recorded_peer(answers_malformed=True, limits=Limits(in_flight=8)) as (peer, transport):
        pending = asyncio.create_task(peer.request("m")) if is_pending else None
        await asyncio.sleep(0)
        peer.pause_writing()
        peer.data_received(b"1\n" * 100)
        await settle(peer)
        written = [message for message in transport.messages if "error" in message]
        if pending is not None:
            pending.cancel()

        assert (len(written), transport.reading) == (8, is_pending)


async def test_invalid_lines_are_answered_when_the_remote_peer_reads_again():
    async with recorded_peer(answers_malformed=True, limits=Limits(in_flight=8)) as (peer, transport):
        peer.pause_writing()
        peer.data_received(b"1\n" * 20)
        await settle(peer)
        peer.resume_writing()
        await settle(peer)

        assert (len(transport.messages), transport.reading) == (20, True)


async def test_handler_can_close_its_own_connection():
    async def leave(request: Request) -> Any:
        await peer.close()

    async with recorded_peer(on_request=leave) as (peer, transport):
        peer.data_received(line(id=1, method="m"))
        await peer.ended.wait()

        assert transport.closed


async def test_pipes_are_closed_when_closing_is_cancelled():
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stuck:
        assert stuck.stdin
        assert stuck.stdout
        leaving = asyncio.Event()

        async def own(peer: Peer) -> None:
            assert stuck.stdin
            assert stuck.stdout
            async with connect_pipes(peer, stuck.stdout, stuck.stdin):
                await peer.notify("more than a pipe holds", "x" * 1_000_000)
                leaving.set()

        owner = asyncio.create_task(own(Peer()))
        await leaving.wait()
        await asyncio.sleep(0)
        owner.cancel()
        await asyncio.wait([owner], timeout=1)
        stuck.kill()

        assert (owner.cancelled(), stuck.stdin.closed, stuck.stdout.closed) == (True, True, True)
