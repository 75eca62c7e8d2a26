"""Random frames: no crash, no hang, and every request with a valid id is answered."""

import asyncio
import json
import os
import random
from collections import Counter
from typing import Any, cast

import pytest

from holdfast.model.limits import Limits
from holdfast.wire.messages import Request
from holdfast.wire.peer import Peer
from tests.wire.recording import RecordingTransport

FRAMES = int(os.environ.get("HOLDFAST_FUZZ", "5000"))
BATCH = 200
LIMITS = Limits(line_bytes=4096, depth=20, digits=50, values=300, in_flight=BATCH + 1)

GOOD = [
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,2.5,null,true]}}}',
    b'{"jsonrpc": "2.0", "id": "s%d", "method": "m", "params": {"_meta": {"k/v": {"a": "\\u00e9\\n\\"q\\""}}}}',
    b'{"method":"m","id":%d,"jsonrpc":"2.0"}',
    b'{"result":{"content":[{"type":"text","text":"hello"}]},"jsonrpc":"2.0","id":%d}',
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}',
    b'{"jsonrpc":"2.0","method":"n","params":{"n":%d}}',
]
FRAGMENTS = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b" ", b"\r", b"-"),
    *(b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\\u0000", b"\\ud800"),
    *(b"NaN", b"1e9", b"null", b'"id":7,', b'"method":"z",', b"9" * 60, b"[" * 30, b"x" * 5000),
]


def mutate(rng: random.Random, number: int) -> bytes:
    line = bytearray(rng.choice(GOOD) % number)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        at = rng.randrange(len(line) + 1)
        match rng.randrange(5):
            case 0:
                line[at:at] = rng.choice(FRAGMENTS)
            case 1:
                del line[at : at + rng.randrange(1, 8)]
            case 2 if at < len(line):
                line[at] = rng.randrange(256)
            case 3:
                line[at:at] = line[at : at + rng.randrange(1, 40)]
            case _:
                line[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
    return bytes(line).replace(b"\n", b" ")


def expected_id(line: bytes) -> Any:
    """The id that must be answered, or None. Parsed with the standard library, not with our own code."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(found)) != len(found):
            raise ValueError("duplicate key")
        return dict(found)

    try:
        message: Any = json.loads(line.decode("utf-8"), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    members = cast(dict[str, Any], message)
    request_id = members.get("id")
    if not isinstance(members.get("method"), str):
        return None
    if (
        isinstance(request_id, bool)
        or not isinstance(request_id, int | str)
        or len(json.dumps(request_id)) > 18
    ):
        return None
    return request_id if len(line) <= LIMITS.line_bytes and "\\ud8" not in json.dumps(message) else None


@pytest.mark.fuzz
@pytest.mark.anyio
@pytest.mark.promise("ACP-11")
async def test_random_frames_do_not_crash_or_hang_and_requests_are_answered():
    async def on_request(request: Request) -> Any:
        return {}

    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for start in range(0, FRAMES, BATCH):
        peer, transport = (
            Peer(on_request=on_request, limits=LIMITS, answers_malformed=True),
            RecordingTransport(),
        )
        peer.connection_made(transport)
        lines = [mutate(rng, start + n) for n in range(BATCH)]
        stream = b"\n".join(lines) + b'\n{"jsonrpc":"2.0","id":"the end","method":"m"}\n'
        while stream:
            size = rng.randrange(1, 3000)
            peer.data_received(stream[:size])
            stream = stream[size:]
        while peer._incoming._tasks or not peer._receiver.is_idle:
            await asyncio.sleep(0)
        answers = Counter(message["id"] for message in transport.messages)
        await peer.close()

        missing = (
            Counter(request_id for line in lines if (request_id := expected_id(line)) is not None) - answers
        )
        assert (missing, answers["the end"]) == (Counter(), 1), f"seed {seed}, frames from {start}"
