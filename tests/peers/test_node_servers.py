"""Our client against the reference servers from npm (handshake era)."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.mcp.client import ServerInfo, negotiate
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.messages import Notification
from tests.peers.spawn import ME, node_server, spawned

pytestmark = pytest.mark.anyio


async def test_everything_echoes_and_reports_a_bad_argument_as_a_result():
    async with spawned(node_server("mcp-server-everything")) as peer:
        client = await negotiate(peer, ME)

        echoed = await client.call_tool("echo", {"message": "häß \U0001f41a"})
        refused = await client.call_tool("echo", {"message": 1})

    assert (client.server_info.era, blocks(echoed), refused.is_error) == (
        Era.HANDSHAKE,
        [{"type": "text", "text": "Echo: häß \U0001f41a"}],
        True,
    )


async def test_everything_reports_progress_before_its_result():
    received: list[Any] = []

    def notice(notification: Notification) -> None:
        if notification.method == "notifications/progress":
            received.append(msgspec.json.decode(notification.params))

    async with spawned(node_server("mcp-server-everything"), notice=notice) as peer:
        client = await negotiate(peer, ME, era=Era.HANDSHAKE)
        arguments = {"duration": 0.03, "steps": 3}
        await client.call_tool("trigger-long-running-operation", arguments, meta={"progressToken": "p"})

        assert received == [{"progressToken": "p", "progress": step, "total": 3} for step in (1, 2, 3)]


async def test_everything_sends_an_image_unchanged():
    async with spawned(node_server("mcp-server-everything")) as peer:
        client = await negotiate(peer, ME, era=Era.HANDSHAKE)

        result = await client.call_tool("get-tiny-image", {})

    image = next(block for block in blocks(result) if block["type"] == "image")
    assert (image["mimeType"], base64.b64decode(image["data"])[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n")


async def test_everything_gets_a_cancellation_when_a_call_times_out_and_keeps_working(tmp_path: Path):
    said = tmp_path / "said"
    async with spawned(node_server("mcp-server-everything"), said=said) as peer:
        client = await negotiate(peer, ME, era=Era.HANDSHAKE)

        with pytest.raises(HoldfastError) as late:
            await client.call_tool("trigger-long-running-operation", {"duration": 60}, timeout=0.05)
        echoed = await client.call_tool("echo", {"message": "still here"})

    sent = lines(said)
    call = next(line for line in sent if line["method"] == "tools/call")
    cancel = next(line for line in sent if line["method"] == "notifications/cancelled")
    assert (late.value.code, cancel["params"]["requestId"], blocks(echoed)[0]["text"]) == (
        codes.TIMEOUT,
        call["id"],
        "Echo: still here",
    )


async def test_memory_keeps_its_state_between_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MEMORY_FILE_PATH", str(tmp_path / "memory.jsonl"))
    otter = {"name": "otter", "entityType": "animal", "observations": ["holds fast to kelp"]}
    async with spawned(node_server("mcp-server-memory")) as peer:
        client = await negotiate(peer, ME, era=Era.HANDSHAKE)

        await client.call_tool("create_entities", {"entities": [otter]})
        graph = await client.call_tool("read_graph", {})

    assert msgspec.json.decode(blocks(graph)[0]["text"]) == {"entities": [otter], "relations": []}


async def test_filesystem_reads_inside_its_root_and_reports_an_error_outside(root: Path):
    async with spawned(node_server("mcp-server-filesystem", str(root))) as peer:
        client = await negotiate(peer, ME, era=Era.HANDSHAKE)

        inside = await client.call_tool("read_text_file", {"path": str(root / "inside.txt")})
        outside = await client.call_tool("read_text_file", {"path": str(root.parent / "outside.txt")})

    assert (blocks(inside)[0]["text"], outside.is_error) == ("in reach", True)
    assert blocks(outside)[0]["text"].startswith("Access denied")


@pytest.mark.slow
@pytest.mark.promise("LNK-14")
async def test_a_servers_era_is_detected_once_and_then_reused(tmp_path: Path):
    at_first = await greeted(tmp_path / "first", remembered=None)
    afterwards = await greeted(tmp_path / "then", remembered=at_first.era)

    assert (methods(tmp_path / "first"), methods(tmp_path / "then"), afterwards) == (
        ["server/discover", "initialize", "notifications/initialized"],
        ["initialize", "notifications/initialized"],
        at_first,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file inside it and one beside it."""
    root = tmp_path.resolve() / "root"
    root.mkdir()
    (root / "inside.txt").write_text("in reach")
    (root.parent / "outside.txt").write_text("out of reach")
    return root


async def greeted(said: Path, *, remembered: Era | None) -> ServerInfo:
    async with spawned(node_server("mcp-server-memory"), said=said) as peer:
        return (await negotiate(peer, ME, era=remembered)).server_info


def blocks(result: CallResult) -> list[Any]:
    return [msgspec.json.decode(block) for block in result.content]


def lines(said: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in said.read_bytes().splitlines()]


def methods(said: Path) -> list[str]:
    return [line["method"] for line in lines(said)]
