"""Our client and our server, in both eras, over an in-memory wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Notification, Raw, Request
from holdfast.wire.mcp import client as client_module
from holdfast.wire.mcp.client import Client, greet
from holdfast.wire.mcp.eras import Era, Implementation, Introduction
from holdfast.wire.mcp.server import Ask, server_peer
from holdfast.wire.mcp.tools import CallParams, CallResult, text_result
from holdfast.wire.memory import joined
from holdfast.wire.peer import Handle, Peer, PeerError

pytestmark = pytest.mark.anyio

ME = Introduction(who=Implementation("test", "1"), meta={"dev.holdfast/session": {"session_id": "sess_1"}})


class Notes:
    """A service with one tool; it remembers what it was asked."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.heard: list[str] = []
        self.introduction = Introduction(
            who=Implementation("notes", "2", "Notes"), capabilities={"tools": {}}, instructions="Be brief."
        )

    async def answer(self, ask: Ask) -> Any:
        self.asks.append(ask)
        match ask.method:
            case "tools/list":
                return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                params = ask.read(CallParams)
                await ask.notify("notifications/progress", {"progressToken": ask.meta.get("progressToken")})
                return text_result(f"{params.name} {bytes(params.arguments).decode()}")
            case _:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {ask.method!r} here.")

    def hear(self, notification: Notification) -> None:
        self.heard.append(notification.method)


@asynccontextmanager
async def greeted(service: Notes, era: Era, notices: list[Any] | None = None) -> AsyncIterator[Client]:
    def notice(notification: Notification) -> None:
        (notices if notices is not None else []).append(notification.method)

    peer = Peer(notice=notice)
    async with joined(peer, server_peer(service)):
        client = await greet(peer, ME, era=era)
        assert client.greeting.era is era
        yield client


@asynccontextmanager
async def scripted(handle: Handle) -> AsyncIterator[Peer]:
    """A peer whose other side answers as the test says."""
    peer = Peer()
    async with joined(peer, Peer(handle=handle)):
        yield peer


both_eras = pytest.mark.parametrize("era", list(Era))


@both_eras
async def test_a_server_introduces_itself_in_the_era_it_is_spoken_to(era: Era):
    async with greeted(Notes(), era) as client:
        greeting = client.greeting

    assert (greeting.version, greeting.server, greeting.capabilities, greeting.instructions) == (
        {"handshake": "2025-11-25", "modern": "2026-07-28"}[era],
        Implementation("notes", "2", "Notes") if era is Era.HANDSHAKE else greeting.server,
        {"tools": {}},
        "Be brief.",
    )
    assert greeting.server.name == "notes"


@both_eras
async def test_tools_are_listed_and_called(era: Era):
    notices: list[str] = []
    async with greeted(Notes(), era, notices) as client:
        tools = await client.tools()
        result = await client.call("add", {"title": "x"}, meta={"progressToken": 3})

    assert [tool.name for tool in tools] == ["add"]
    assert [bytes(block) for block in result.content] == [
        b'{"type":"text","text":"add {\\"title\\":\\"x\\"}"}'
    ]
    assert (result.is_error, result.result_type, notices) == (False, "complete", ["notifications/progress"])


@both_eras
@pytest.mark.promise("CTX-05")
async def test_our_own_meta_travels_with_every_request_and_nothing_overrides_it(era: Era):
    service = Notes()
    async with greeted(service, era) as client:
        await client.tools()
        await client.call("add", {}, meta={"dev.holdfast/session": {"session_id": "forged"}, "mine": 1})
    listed, called = service.asks

    assert [ask.meta["dev.holdfast/session"] for ask in service.asks] == [{"session_id": "sess_1"}] * 2
    assert (called.meta["mine"], "mine" in listed.meta) == (1, False)
    assert called.caller.meta == (
        {"dev.holdfast/session": {"session_id": "sess_1"}} if era is Era.HANDSHAKE else {}
    )


@both_eras
async def test_the_server_knows_who_asks(era: Era):
    service = Notes()
    async with greeted(service, era) as client:
        await client.tools()

    assert (service.asks[0].caller.who, service.asks[0].caller.era) == (Implementation("test", "1"), era)


@both_eras
async def test_a_method_nobody_knows_and_params_nobody_can_read_are_named(era: Era):
    async with greeted(Notes(), era) as client:
        with pytest.raises(PeerError, match="There is no method 'nope' here") as unknown:
            await client.request("nope")
        with pytest.raises(PeerError, match="The params of tools/call cannot be read") as unreadable:
            await client.request("tools/call", {"name": 5})

    assert (unknown.value.rpc, unreadable.value.rpc) == (-32601, -32602)


async def test_ping_is_answered_before_the_handshake_and_nothing_else_is():
    peer = Peer()
    async with joined(peer, server_peer(Notes())):
        pong = await peer.request("ping")
        with pytest.raises(PeerError, match="Send initialize first") as refused:
            await peer.request("tools/list")

    assert (bytes(pong), refused.value.rpc) == (b"{}", -32602)


async def test_both_eras_are_served_on_one_stream():
    service = Notes()
    peer = Peer()
    async with joined(peer, server_peer(service)):
        first = await greet(peer, ME, era=Era.HANDSHAKE)
        second = await greet(peer, ME, era=Era.MODERN)
        await first.tools()
        await second.tools()

    assert [ask.caller.era for ask in service.asks] == [Era.HANDSHAKE, Era.MODERN]


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
async def test_a_modern_request_without_its_envelope_is_refused(meta: Any, rpc: int):
    peer = Peer()
    async with joined(peer, server_peer(Notes())):
        with pytest.raises(PeerError) as refused:
            await peer.request("tools/list", {"_meta": meta})

    assert refused.value.rpc == rpc


async def test_a_version_from_the_future_is_answered_with_one_we_know():
    peer = Peer()
    async with joined(peer, server_peer(Notes())):
        answer = await peer.request("initialize", {"protocolVersion": "2031-01-01", "capabilities": {}})

    assert b'"protocolVersion":"2025-11-25"' in bytes(answer)


async def test_modern_results_are_stamped_without_losing_what_the_service_said():
    class Stamper(Notes):
        async def answer(self, ask: Ask) -> Any:
            return Raw(b'{"resultType":"input_required","_meta":{"a":1},"ttlMs":5}')

    async with greeted(Stamper(), Era.MODERN) as client:
        raw = await client.request("tools/list")

    assert client.read(raw, dict[str, Any]) == {
        "resultType": "input_required",
        "_meta": {
            "a": 1,
            "io.modelcontextprotocol/serverInfo": {"name": "notes", "version": "2", "title": "Notes"},
        },
        "ttlMs": 5,
        "cacheScope": "private",
    }


async def test_notifications_reach_the_service_but_the_handshake_s_own():
    service = Notes()
    async with greeted(service, Era.HANDSHAKE) as client:
        assert isinstance(client.peer, Peer)
        await client.peer.notify("notifications/roots/list_changed")
        await client.tools()

    assert service.heard == ["notifications/roots/list_changed"]


async def test_a_server_from_before_discover_is_greeted_by_handshake():
    asked: list[str] = []

    async def old(request: Request) -> Any:
        asked.append(request.method)
        if request.method == "initialize":
            return {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "0"},
            }
        raise HoldfastError(codes.METHOD_NOT_FOUND, "Method not found")

    async with scripted(old) as peer:
        found = (await greet(peer, ME)).greeting
        remembered = (await greet(peer, ME, era=found.era)).greeting

    assert (found, found.version, asked) == (
        remembered,
        "2024-11-05",
        ["server/discover", "initialize", "initialize"],
    )


async def test_an_old_server_that_ignores_what_it_does_not_know_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(client_module, "PATIENCE", 0.01)

    async def silent(request: Request) -> Any:
        if request.method != "initialize":
            await asyncio.Event().wait()
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "silent", "version": "0"},
        }

    async with scripted(silent) as peer:
        greeting = (await greet(peer, ME)).greeting

    assert (greeting.era, greeting.version) == (Era.HANDSHAKE, "2025-06-18")


async def test_a_slow_modern_server_is_still_found_to_be_modern(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "PATIENCE", 0.01)
    waited = asyncio.Event()

    async def slow(request: Request) -> Any:
        if request.method == "initialize":
            waited.set()
            raise PeerError(-32022, "modern only", {"supported": ["2026-07-28"]})
        await waited.wait()
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    async with scripted(slow) as peer:
        greeting = (await greet(peer, ME)).greeting

    assert (greeting.era, greeting.server) == (Era.MODERN, Implementation())


async def test_a_remembered_era_that_is_out_of_date_is_no_obstacle():
    async def modern_only(request: Request) -> Any:
        if request.method == "initialize":
            raise PeerError(-32022, "modern only", {"supported": ["2026-07-28"]})
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    async with scripted(modern_only) as peer:
        assert (await greet(peer, ME, era=Era.HANDSHAKE)).greeting.era is Era.MODERN


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ({"protocolVersion": "1999-01-01"}, codes.UNSUPPORTED_VERSION, "The server speaks MCP '1999-01-01'"),
        ({"protocolVersion": 5}, codes.BAD_ANSWER, "The server's introduction cannot be read"),
        ([], codes.BAD_ANSWER, "The server's introduction cannot be read"),
    ],
)
async def test_a_server_that_introduces_itself_badly_is_refused(answer: Any, code: codes.Code, says: str):
    async def odd(request: Request) -> Any:
        return answer

    async with scripted(odd) as peer:
        with pytest.raises(HoldfastError, match=says) as refused:
            await greet(peer, ME)

    assert refused.value.code is code


async def test_a_server_that_never_introduces_itself_is_given_up_in_time():
    async def mute(request: Request) -> Any:
        await asyncio.Event().wait()

    async with scripted(mute) as peer:
        with pytest.raises(HoldfastError, match=r"did not introduce itself within 0.05 s") as refused:
            await greet(peer, ME, timeout=0.05)

    assert refused.value.code is codes.TIMEOUT


@pytest.mark.parametrize("cursor", ["same", None])
async def test_a_list_of_tools_without_end_is_refused(cursor: str | None):
    pages = 0

    async def endless(request: Request) -> Any:
        nonlocal pages
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        pages += 1
        return {"tools": [{"name": "t"}], "nextCursor": cursor or f"page {pages}"}

    async with scripted(endless) as peer:
        client = await greet(peer, ME)
        with pytest.raises(HoldfastError, match="lists its tools without end"):
            await client.tools(most=50)

    assert pages <= 52


async def test_a_result_that_two_readers_would_read_differently_is_refused():
    async def twofold(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return Raw(b'{"tools":[{"name":"a","name":"b"}]}')

    async with scripted(twofold) as peer:
        client = await greet(peer, ME)
        with pytest.raises(HoldfastError, match="the same key stands twice"):
            await client.tools()


async def test_a_tool_s_own_error_is_a_result():
    async def failing(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return text_result("disk full", is_error=True)

    async with scripted(failing) as peer:
        client = await greet(peer, ME)
        result = await client.call("t", Raw(b'{"a":1}'))

    assert result == CallResult(content=result.content, is_error=True)


async def test_a_result_is_passed_on_as_it_came_and_one_of_the_wrong_shape_is_the_server_s_fault():
    answers = iter([Raw(b'{"structuredContent":{"a":1,"a":2}}'), Raw(b'{"content":5}')])

    async def odd(request: Request) -> Any:
        if request.method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        return next(answers)

    async with scripted(odd) as peer:
        client = await greet(peer, ME)
        passed_on = await client.call("t", {})
        with pytest.raises(HoldfastError, match="cannot be read: Expected `array`, got `int`"):
            await client.call("t", {})

    assert passed_on.structured_content == Raw(b'{"a":1,"a":2}')
