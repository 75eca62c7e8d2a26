"""Our client against servers made with the official Python SDK and with FastMCP, in both eras."""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.messages import Notification, PeerError
from tests.peers.spawn import ME, python, spawned


@pytest.mark.anyio
@pytest.mark.promise("LNK-14")
@pytest.mark.parametrize(
    ("remembered", "era"),
    [(None, Era.MODERN), pytest.param(Era.HANDSHAKE, Era.HANDSHAKE, marks=pytest.mark.slow)],
)
async def test_client_works_with_an_sdk_server_in_both_eras(remembered: Era | None, era: Era):
    server, texts = await conversation("sdk_server.py", remembered)

    assert (server, texts) == (
        ("sdk-server", era),
        expected(failure="Error executing tool fail: as asked", unknown="Unknown tool: nope"),
    )


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("LNK-14")
@pytest.mark.parametrize(
    ("remembered", "era"),
    [pytest.param(None, Era.MODERN, marks=pytest.mark.slow), (Era.HANDSHAKE, Era.HANDSHAKE)],
)
async def test_client_works_with_a_fastmcp_server_in_both_eras(remembered: Era | None, era: Era):
    server, texts = await conversation("fastmcp_server.py", remembered)

    assert (server, texts) == (
        ("fastmcp-server", era),
        expected(failure="as asked", unknown="Unknown tool: 'nope'"),
    )


class Notifications:
    """A queue of the notifications received."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Notification] = asyncio.Queue()

    def __call__(self, notification: Notification) -> None:
        self._queue.put_nowait(notification)

    async def next(self) -> tuple[str, Any]:
        notification = await self._queue.get()
        return notification.method, msgspec.json.decode(notification.params)


def expected(*, failure: str, unknown: str) -> dict[str, Any]:
    return {
        "introduction": ("1.2.3", "Echo and count."),
        "tools": ["cancelled", "count", "echo", "fail", "wait"],
        "echo": (False, "häß \U0001f41a"),
        "count": [(False, "1"), (False, "2")],
        "fail": (True, failure),
        "unknown tool": (True, unknown),
        "unknown method": -32601,
        "progress": ("notifications/progress", {"progressToken": "wait-1", "progress": 1.0, "total": 2.0}),
        "cancelled": (False, "1"),
    }


async def conversation(script: str, remembered: Era | None) -> tuple[tuple[str, Era], dict[str, Any]]:
    received = Notifications()
    async with spawned(python(script), notice=received) as peer:
        client = await negotiate(peer, ME, era=remembered)
        greeting = client.server_info
        said: dict[str, Any] = {"introduction": (greeting.server.version, greeting.instructions)}
        said["tools"] = sorted(tool.name for tool in await client.list_tools())
        said["echo"] = read(await client.call_tool("echo", {"text": "häß \U0001f41a"}))
        said["count"] = [read(await client.call_tool("count", {})), read(await client.call_tool("count", {}))]
        said["fail"] = read(await client.call_tool("fail", {}))
        said["unknown tool"] = read(await client.call_tool("nope", {}))
        with pytest.raises(PeerError) as refusal:
            await client.request("no/such/method")
        said["unknown method"] = refusal.value.rpc_code

        waiting = asyncio.create_task(client.call_tool("wait", {}, meta={"progressToken": "wait-1"}))
        said["progress"] = await received.next()
        waiting.cancel()
        await asyncio.wait([waiting])
        said["cancelled"] = read(await client.call_tool("cancelled", {}))
    return (greeting.server.name, greeting.era), said


def read(result: CallResult) -> tuple[bool, str]:
    (block,) = (msgspec.json.decode(block) for block in result.content)
    return result.is_error, block["text"]
