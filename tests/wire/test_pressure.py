"""What a peer does when the other side is slow, stuck, hostile or in a hurry."""

import asyncio
import json
import logging
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.frame import Request
from holdfast.wire.peer import ACP, MCP, Dialect, Peer, PeerError
from holdfast.wire.pipe import over_pipes
from tests.wire.tape import Tape

pytestmark = pytest.mark.anyio


async def echo(request: Request) -> Any:
    return request.params


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


@asynccontextmanager
async def taped(**options: Any) -> AsyncIterator[tuple[Peer, Tape]]:
    """A peer whose other side is the test itself."""
    peer, tape = Peer(**options), Tape()
    peer.connected(tape)
    yield peer, tape
    await peer.close()


@pytest.mark.parametrize("dialect", [MCP, ACP], ids=["mcp", "acp"])
async def test_a_request_taken_back_in_the_same_breath_leaves_no_slot_taken(dialect: Dialect):
    both = asyncio.Barrier(2)

    async def meet(request: Request) -> Any:
        await both.wait()

    async with taped(handle=meet, dialect=dialect, limits=Limits(in_flight=2)) as (peer, tape):
        for number in range(10):
            take_back = line(method=dialect.cancel_method, params={"requestId": number})
            peer.received(line(id=number, method="m") + take_back)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        before = len(tape.messages)
        peer.received(line(id="one", method="m") + line(id="other", method="m"))

        met = await tape.wait_for(before + 2)
    assert [message["result"] for message in met[before:]] == [None, None]


async def test_in_acp_a_request_taken_back_before_it_began_is_answered_as_cancelled():
    async def wait(request: Request) -> Any:
        await asyncio.Event().wait()

    async with taped(handle=wait, dialect=ACP) as (peer, tape):
        peer.received(line(id=1, method="m") + line(method=ACP.cancel_method, params={"requestId": 1}))

        (answer,) = await tape.wait_for(1)
    assert answer["error"]["code"] == codes.CANCELLED.rpc


async def test_an_error_whose_words_are_no_text_is_still_answered():
    async def fail(request: Request) -> Any:
        raise HoldfastError(codes.BAD_ARGUMENT, f"There is no file {os.fsdecode(b'a' + bytes([255]))}.")

    async with taped(handle=fail) as (peer, tape):
        peer.received(line(id=1, method="m"))

        (answer,) = await tape.wait_for(1)
    assert answer["error"] == {"code": codes.BAD_ARGUMENT.rpc, "message": "There is no file a?."}


async def test_an_error_that_cannot_be_written_is_an_internal_error(caplog: pytest.LogCaptureFixture):
    async def fail(request: Request) -> Any:
        raise PeerError(-32042, "later", object())

    caplog.set_level(logging.CRITICAL)
    async with taped(handle=fail) as (peer, tape):
        peer.received(line(id=1, method="m"))

        (answer,) = await tape.wait_for(1)
    assert answer["error"] == {"code": codes.INTERNAL_ERROR.rpc, "message": "Internal error."}


async def test_a_request_that_could_not_be_sent_in_time_is_never_sent():
    async with taped() as (peer, tape):
        peer.pause_writing()
        with pytest.raises(HoldfastError, match="not answered within"):
            await peer.request("m", timeout=0.001)
        peer.resume_writing()
        await peer.notify("n")

        assert [message["method"] for message in tape.messages] == ["n"]


async def test_a_caller_held_up_by_a_stuck_reader_hears_that_the_other_side_is_gone():
    async with taped() as (peer, _):
        peer.pause_writing()
        asking = asyncio.create_task(peer.request("m"))
        await asyncio.sleep(0)
        peer.input_ended()

        with pytest.raises(HoldfastError, match="closed the connection"):
            await asking


@pytest.mark.parametrize("asked", [False, True])
async def test_one_who_sends_nonsense_and_reads_nothing_gets_a_bounded_number_of_answers(asked: bool):
    async with taped(answers_malformed=True, limits=Limits(in_flight=8)) as (peer, tape):
        asking = asyncio.create_task(peer.request("m")) if asked else None
        await asyncio.sleep(0)
        peer.pause_writing()
        peer.received(b"1\n" * 100)
        written = [message for message in tape.messages if "error" in message]
        if asking is not None:
            asking.cancel()

        assert (len(written), tape.reading) == (8, asked)


async def test_nonsense_held_up_is_answered_once_the_other_side_reads_again():
    async with taped(answers_malformed=True, limits=Limits(in_flight=8)) as (peer, tape):
        peer.pause_writing()
        peer.received(b"1\n" * 20)
        peer.resume_writing()

        assert (len(tape.messages), tape.reading) == (20, True)


async def test_a_handler_may_close_its_own_connection():
    async def leave(request: Request) -> Any:
        await peer.close()

    async with taped(handle=leave) as (peer, tape):
        peer.received(line(id=1, method="m"))
        await peer.ended.wait()

        assert tape.closed


async def test_an_owner_cancelled_while_it_closes_still_lets_go_of_the_pipes():
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stuck:
        assert stuck.stdin
        assert stuck.stdout
        leaving = asyncio.Event()

        async def own(peer: Peer) -> None:
            assert stuck.stdin
            assert stuck.stdout
            async with over_pipes(peer, stuck.stdout, stuck.stdin):
                await peer.notify("more than a pipe holds", "x" * 1_000_000)
                leaving.set()

        owner = asyncio.create_task(own(Peer()))
        await leaving.wait()
        await asyncio.sleep(0)
        owner.cancel()
        await asyncio.wait([owner], timeout=1)
        stuck.kill()

        assert (owner.cancelled(), stuck.stdin.closed, stuck.stdout.closed) == (True, True, True)
