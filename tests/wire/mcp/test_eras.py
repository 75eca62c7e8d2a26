"""Our client and our server in both eras, connected in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import RequestHandler
from holdfast.wire.mcp import client as client_module
from holdfast.wire.mcp.client import Client, negotiate
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo
from holdfast.wire.mcp.server import McpRequest, server_peer
from holdfast.wire.mcp.tools import CallParams, CallResult, text_result
from holdfast.wire.messages import Notification, PeerError, Raw, Request
from holdfast.wire.peer import Peer

pytestmark = pytest.mark.anyio

ME = OwnInfo(
    implementation=Implementation("test", "1"), meta={"dev.holdfast/session": {"session_id": "sess_1"}}
)


class Notes:
    """A service with one tool that records its requests."""

    def __init__(self) -> None:
        self.requests: list[McpRequest] = []
        self.notifications: list[str] = []
        self.info = OwnInfo(
            implementation=Implementation("notes", "2", "Notes"),
            capabilities={"tools": {}},
            instructions="Be brief.",
        )

    async def answer(self, request: McpRequest) -> Any:
        self.requests.append(request)
        match request.method:
            case "tools/list":
                return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                params = request.decode_params(CallParams)
                await request.notify(
                    "notifications/progress", {"progressToken": request.meta.get("progressToken")}
                )
                return text_result(f"{params.name} {bytes(params.arguments).decode()}")
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r}.")

    def on_notification(self, notification: Notification) -> None:
        self.notifications.append(notification.method)


@asynccontextmanager
async def connect(service: Notes, era: Era, notifications: list[Any] | None = None) -> AsyncIterator[Client]:
    def on_notification(notification: Notification) -> None:
        (notifications if notifications is not None else []).append(notification.method)

    peer = Peer(on_notification=on_notification)
    async with connect_memory(peer, server_peer(service)):
        client = await negotiate(peer, ME, era=era)
        assert client.server_info.era is era
        yield client


@asynccontextmanager
async def scripted(on_request: RequestHandler) -> AsyncIterator[Peer]:
    """A peer that is connected to a scripted server."""
    peer = Peer()
    async with connect_memory(peer, Peer(on_request=on_request)):
        yield peer


both_eras = pytest.mark.parametrize("era", list(Era))


@both_eras
async def test_server_info_is_reported_in_both_eras(era: Era):
    async with connect(Notes(), era) as client:
        server_info = client.server_info

    assert (server_info.version, server_info.server, server_info.capabilities, server_info.instructions) == (
        {"handshake": "2025-11-25", "modern": "2026-07-28"}[era],
        Implementation("notes", "2", "Notes") if era is Era.HANDSHAKE else server_info.server,
        {"tools": {}},
        "Be brief.",
    )
    assert server_info.server.name == "notes"


@both_eras
async def test_tools_are_listed_and_called(era: Era):
    notifications: list[str] = []
    async with connect(Notes(), era, notifications) as client:
        tools = await client.list_tools()
        result = await client.call_tool("add", {"title": "x"}, meta={"progressToken": 3})

    assert [tool.name for tool in tools] == ["add"]
    assert [bytes(block) for block in result.content] == [
        b'{"type":"text","text":"add {\\"title\\":\\"x\\"}"}'
    ]
    assert (result.is_error, result.result_type, notifications) == (
        False,
        "complete",
        ["notifications/progress"],
    )


@both_eras
@pytest.mark.promise("CTX-05")
async def test_own_meta_is_sent_with_every_request_and_cannot_be_overridden(era: Era):
    service = Notes()
    async with connect(service, era) as client:
        await client.list_tools()
        await client.call_tool("add", {}, meta={"dev.holdfast/session": {"session_id": "forged"}, "mine": 1})
    listed, called = service.requests

    assert [request.meta["dev.holdfast/session"] for request in service.requests] == [
        {"session_id": "sess_1"}
    ] * 2
    assert (called.meta["mine"], "mine" in listed.meta) == (1, False)
    assert called.client.meta == (
        {"dev.holdfast/session": {"session_id": "sess_1"}} if era is Era.HANDSHAKE else {}
    )


@both_eras
async def test_server_knows_its_client(era: Era):
    service = Notes()
    async with connect(service, era) as client:
        await client.list_tools()

    assert (service.requests[0].client.implementation, service.requests[0].client.era) == (
        Implementation("test", "1"),
        era,
    )


@both_eras
async def test_unknown_method_and_invalid_params_are_refused(era: Era):
    async with connect(Notes(), era) as client:
        with pytest.raises(PeerError, match="There is no method 'nope'") as unknown:
            await client.request("nope")
        with pytest.raises(PeerError, match="The params of tools/call are invalid") as invalid:
            await client.request("tools/call", {"name": 5})

    assert (unknown.value.rpc_code, invalid.value.rpc_code) == (-32601, -32602)


async def test_only_ping_is_answered_before_the_handshake():
    peer = Peer()
    async with connect_memory(peer, server_peer(Notes())):
        pong = await peer.request("ping")
        with pytest.raises(PeerError, match="Send initialize first") as refused:
            await peer.request("tools/list")

    assert (bytes(pong), refused.value.rpc_code) == (b"{}", -32602)


async def test_both_eras_are_served_on_one_stream():
    service = Notes()
    peer = Peer()
    async with connect_memory(peer, server_peer(service)):
        first = await negotiate(peer, ME, era=Era.HANDSHAKE)
        second = await negotiate(peer, ME, era=Era.MODERN)
        await first.list_tools()
        await second.list_tools()

    assert [request.client.era for request in service.requests] == [Era.HANDSHAKE, Era.MODERN]


@pytest.mark.parametrize(
    ("meta", "rpc"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
        (
            {"io.modelcontextprotocol/protocolVersion": 5, "io.modelcontextprotocol/clientCapabilities": {}},
            -32602,
        ),
        (
            {
                "io.modelcontextprotocol/protocolVersion": "2031-01-01",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            -32022,
        ),
        (5, -32602),
    ],
)
async def test_modern_request_with_invalid_meta_is_refused(meta: Any, rpc: int):
    peer = Peer()
    async with connect_memory(peer, server_peer(Notes())):
        with pytest.raises(PeerError) as refused:
            await peer.request("tools/list", {"_meta": meta})

    assert refused.value.rpc_code == rpc


async def test_unknown_version_is_answered_with_the_latest_known_one():
    peer = Peer()
    async with connect_memory(peer, server_peer(Notes())):
        answer = await peer.request("initialize", {"protocolVersion": "2031-01-01", "capabilities": {}})

    assert b'"protocolVersion":"2025-11-25"' in bytes(answer)


async def test_modern_fields_do_not_replace_those_of_the_service():
    class OwnFields(Notes):
        async def answer(self, request: McpRequest) -> Any:
            return Raw(b'{"resultType":"input_required","_meta":{"a":1},"ttlMs":5}')

    async with connect(OwnFields(), Era.MODERN) as client:
        raw = await client.request("tools/list")

    assert client.decode(raw, dict[str, Any]) == {
        "resultType": "input_required",
        "_meta": {
            "a": 1,
            "io.modelcontextprotocol/serverInfo": {"name": "notes", "version": "2", "title": "Notes"},
        },
        "ttlMs": 5,
        "cacheScope": "private",
    }


async def test_notifications_except_initialized_reach_the_service():
    service = Notes()
    async with connect(service, Era.HANDSHAKE) as client:
        assert isinstance(client.peer, Peer)
        await client.peer.notify("notifications/roots/list_changed")
        await client.list_tools()

    assert service.notifications == ["notifications/roots/list_changed"]


async def test_server_without_discover_is_initialized():
    methods: list[str] = []

    async def old(request: Request) -> Any:
        methods.append(request.method)
        if request.method == "initialize":
            return {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "0"},
            }
        raise HoldfastError(codes.METHOD_NOT_FOUND, "Method not found")

    async with scripted(old) as peer:
        found = (await negotiate(peer, ME)).server_info
        remembered = (await negotiate(peer, ME, era=found.era)).server_info

    assert (found, found.version, methods) == (
        remembered,
        "2024-11-05",
        ["server/discover", "initialize", "initialize"],
    )


async def test_server_that_ignores_discover_is_initialized_after_a_delay(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(client_module, "DISCOVER_TIMEOUT", 0.01)

    async def silent(request: Request) -> Any:
        if request.method != "initialize":
            await asyncio.Event().wait()
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "silent", "version": "0"},
        }

    async with scripted(silent) as peer:
        server_info = (await negotiate(peer, ME)).server_info

    assert (server_info.era, server_info.version) == (Era.HANDSHAKE, "2025-06-18")


async def test_slow_modern_server_is_still_detected_as_modern(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "DISCOVER_TIMEOUT", 0.01)
    waited = asyncio.Event()

    async def slow(request: Request) -> Any:
        if request.method == "initialize":
            waited.set()
            raise PeerError(-32022, "modern only", {"supported": ["2026-07-28"]})
        await waited.wait()
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    async with scripted(slow) as peer:
        server_info = (await negotiate(peer, ME)).server_info

    assert (server_info.era, server_info.server) == (Era.MODERN, Implementation())


async def test_wrong_remembered_era_is_corrected():
    async def modern_only(request: Request) -> Any:
        if request.method == "initialize":
            raise PeerError(-32022, "modern only", {"supported": ["2026-07-28"]})
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    async with scripted(modern_only) as peer:
        assert (await negotiate(peer, ME, era=Era.HANDSHAKE)).server_info.era is Era.MODERN


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ({"protocolVersion": "1999-01-01"}, codes.UNSUPPORTED_VERSION, "The server speaks MCP '1999-01-01'"),
        ({"protocolVersion": 5}, codes.BAD_ANSWER, "The server's answer in the MCP negotiation is invalid"),
        ([], codes.BAD_ANSWER, "The server's answer in the MCP negotiation is invalid"),
    ],
)
async def test_invalid_handshake_is_refused(answer: Any, code: codes.Code, message: str):
    async def odd(request: Request) -> Any:
        return answer

    async with scripted(odd) as peer:
        with pytest.raises(HoldfastError, match=message) as refused:
            await negotiate(peer, ME)

    assert refused.value.code is code


async def test_handshake_times_out():
    async def mute(request: Request) -> Any:
        await asyncio.Event().wait()

    async with scripted(mute) as peer:
        with pytest.raises(
            HoldfastError, match=r"did not complete the MCP negotiation within 0.05 s"
        ) as refused:
            await negotiate(peer, ME, timeout=0.05)

    assert refused.value.code is codes.TIMEOUT


@pytest.mark.parametrize(
    ("cursor", "tools", "problem"),
    [
        ("same", [{"name": "t"}], "repeats a page"),
        (None, [{"name": "t"}], "has more than 50 tools"),
        (None, [], "has more than 50 pages"),
        (None, [{"name": "t", "description": "x" * 1024**2}], "has more than 4194304 bytes"),
    ],
)
async def test_endless_tool_list_is_refused(cursor: str | None, tools: list[Any], problem: str):
    pages = 0

    async def endless(request: Request) -> Any:
        nonlocal pages
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        pages += 1
        return {"tools": tools, "nextCursor": cursor or f"page {pages}"}

    async with scripted(endless) as peer:
        client = await negotiate(peer, ME)
        with pytest.raises(HoldfastError, match=f"^The server sent a tool list that {problem}.$"):
            await client.list_tools(max_tools=50)

    assert pages <= 52


async def test_result_with_a_duplicate_key_is_refused():
    async def duplicate(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return Raw(b'{"tools":[{"name":"a","name":"b"}]}')

    async with scripted(duplicate) as peer:
        client = await negotiate(peer, ME)
        with pytest.raises(HoldfastError, match="an object has a duplicate key"):
            await client.list_tools()


async def test_error_reported_by_a_tool_is_a_result():
    async def failing(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return text_result("disk full", is_error=True)

    async with scripted(failing) as peer:
        client = await negotiate(peer, ME)
        result = await client.call_tool("t", Raw(b'{"a":1}'))

    assert result == CallResult(content=result.content, is_error=True)


async def test_call_result_is_passed_on_unchanged_and_one_of_the_wrong_type_is_refused():
    answers = iter([Raw(b'{"structuredContent":{"a":1,"a":2}}'), Raw(b'{"content":5}')])

    async def odd(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return next(answers)

    async with scripted(odd) as peer:
        client = await negotiate(peer, ME)
        passed_on = await client.call_tool("t", {})
        with pytest.raises(HoldfastError, match="invalid answer: Expected `array`, got `int`"):
            await client.call_tool("t", {})

    assert passed_on.structured_content == Raw(b'{"a":1,"a":2}')
