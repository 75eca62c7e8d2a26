"""Attack 35: a key stands twice in a message, so that two readers read two messages."""

import json

import pytest

from holdfast.wire.frame import Request
from holdfast.wire.peer import Peer
from tests.wire.tape import Tape

pytestmark = pytest.mark.anyio

TWOFOLD = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
    b'"params":{"name":"read","arguments":{"path":"a","path":"/etc/passwd"},"name":"write"}}\n'
)


async def test_the_message_is_refused(monkeypatch: pytest.MonkeyPatch):
    asked: list[Request] = []

    async def handle(request: Request) -> object:
        asked.append(request)
        return {}

    peer, tape = Peer(handle=handle, answers_malformed=True), Tape()
    peer.connected(tape)
    peer.received(TWOFOLD)
    (refusal,) = await tape.wait_for(1)
    await peer.close()

    assert (asked, refusal["error"]["code"], "stands twice" in refusal["error"]["message"]) == (
        [],
        -32600,
        True,
    )


async def test_control_a_plain_reader_takes_the_last_and_another_the_first():
    last = json.loads(TWOFOLD)["params"]
    first = json.loads(TWOFOLD, object_pairs_hook=lambda pairs: dict(reversed(pairs)))["params"]

    assert (last["name"], last["arguments"]["path"]) == ("write", "/etc/passwd")
    assert (first["name"], first["arguments"]["path"]) == ("read", "a")
