import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes
from tests.wire import echo_process

ECHO = [sys.executable, "-m", echo_process.__name__]
ASK = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n'


def test_piped_requests_are_answered_before_the_process_exits():
    done = subprocess.run(
        ECHO, input=ASK + ASK.replace(b'"id":1', b'"id":2'), capture_output=True, timeout=10, check=True
    )

    assert done.stdout == ANSWER + ANSWER.replace(b'"id":1', b'"id":2')


def test_input_and_output_can_be_plain_files(tmp_path: Path):
    (tmp_path / "in").write_bytes(ASK)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        subprocess.run(ECHO, stdin=source, stdout=target, timeout=10, check=True)

    assert (tmp_path / "out").read_bytes() == ANSWER


def test_process_exits_at_once_without_input():
    done = subprocess.run(ECHO, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True)

    assert (done.stdout, done.stderr) == (b"", b"")


def test_process_exits_quietly_when_its_output_is_closed():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        ECHO, input=ASK * 1000, stdout=write_end, stderr=subprocess.PIPE, timeout=10, check=True
    )
    os.close(write_end)

    assert done.stderr == b""


@pytest.mark.anyio
async def test_killed_child_fails_pending_requests_and_leaks_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    with subprocess.Popen(ECHO, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdin
        peer = Peer()
        async with connect_pipes(peer, child.stdout, child.stdin):
            assert bytes(await peer.request("m", {"b": 2})) == b'{"b":2}'
            child.kill()
            with pytest.raises(HoldfastError, match="closed"):
                await peer.request("m")
            await peer.ended.wait()

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.anyio
async def test_closing_does_not_wait_for_a_reader_that_does_not_read():
    read_end, write_end = os.pipe()
    source, _kept_open = os.pipe()
    peer = Peer()
    async with asyncio.timeout(10):
        async with connect_pipes(peer, os.fdopen(source, "rb"), os.fdopen(write_end, "wb")):
            sending = asyncio.create_task(peer.notify("n", {"a": "x" * 1_000_000}))
            while not sending.done() and peer._writable.is_set():
                await asyncio.sleep(0)
    sending.cancel()
    os.close(read_end)
    os.close(_kept_open)
