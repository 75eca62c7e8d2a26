"""Attack 35: a message has the same key twice, so that two parsers read it differently."""

import json

import pytest

from holdfast.wire.messages import Request
from holdfast.wire.peer import Peer
from tests.wire.recording import RecordingTransport

pytestmark = pytest.mark.anyio

DUPLICATE_KEYS = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
    b'"params":{"name":"read","arguments":{"path":"a","path":"/etc/passwd"},"name":"write"}}\n'
)


async def test_message_with_duplicate_keys_is_refused(monkeypatch: pytest.MonkeyPatch):
    handled: list[Request] = []

    async def handle(request: Request) -> object:
        handled.append(request)
        return {}

    peer, tape = Peer(on_request=handle, answers_malformed=True), RecordingTransport()
    peer.connection_made(tape)
    peer.data_received(DUPLICATE_KEYS)
    (refusal,) = await tape.wait_for(1)
    await peer.close()

    assert (handled, refusal["error"]["code"], "duplicate key" in refusal["error"]["message"]) == (
        [],
        -32600,
        True,
    )


async def test_control_parsers_disagree_about_duplicate_keys():
    last = json.loads(DUPLICATE_KEYS)["params"]
    first = json.loads(DUPLICATE_KEYS, object_pairs_hook=lambda pairs: dict(reversed(pairs)))["params"]

    assert (last["name"], last["arguments"]["path"]) == ("write", "/etc/passwd")
    assert (first["name"], first["arguments"]["path"]) == ("read", "a")
