"""Attack 34: a paginated list without a last page."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http import param_headers
from holdfast.model.errors import HoldfastError
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import RequestHandler
from holdfast.wire.mcp.client import MAX_LIST_BYTES, Client, ServerInfo
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.messages import Raw, Request
from holdfast.wire.peer import Peer
from tests.connect.conftest import HostFactory, counter_entry, hostile_entry, make_host
from tests.connect.web import ScriptedServer, connect_options, http_entry, serve
from tests.cost import least_cpu_seconds

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected_client(on_request: RequestHandler) -> AsyncIterator[Client]:
    """A client of a scripted server."""
    me = OwnInfo(implementation=Implementation("test", "1"))
    server_info = ServerInfo(
        era=Era.MODERN, version="2026-07-28", server=Implementation(), capabilities={}, instructions=""
    )
    peer = Peer()
    async with connect_memory(peer, Peer(on_request=on_request)):
        yield Client(peer, me, server_info)


@pytest.mark.promise("LNK-13")
@pytest.mark.promise("LNK-09")
async def test_server_is_refused_and_the_session_opens_with_the_others(
    make_host: HostFactory, tmp_path: Path
):
    servers = {"good": counter_entry(), "x": hostile_entry("an endless list")}
    async with make_host(servers) as host, host.session(cwd=tmp_path) as session:
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "The server sent a tool list that has more than 2000 tools.")
        ]
        assert (await session.call("good.count")).text == "1"


@pytest.mark.promise("LNK-09")
async def test_server_that_lists_slowly_is_refused_after_the_timeout(make_host: HostFactory, tmp_path: Path):
    options = ConnectOptions(list_seconds=0.3, end_seconds=0.2)
    async with (
        make_host({"x": hostile_entry("a slow list")}, options=options) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert [(refusal.server, refusal.reason) for refusal in session.refusals] == [
            ("x", "'x' did not list its tools within 0.3 s.")
        ]


async def test_resources_and_prompts_are_limited_as_well(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--endless")}) as host, host.session(cwd=tmp_path) as session:
        for what in (session.list_resources, session.list_prompts):
            with pytest.raises(HoldfastError, match="repeats a page"):
                await what("c")


HOSTILE_PAGES: dict[str, list[dict[str, str]]] = {
    "has more than 4194304 bytes": [{"uri": "x" * (MAX_LIST_BYTES // 5)}],
    "has more than 400000 values": [{}] * 45_000,
    "has more than 1000 pages": [],
}


@pytest.mark.parametrize("problem", HOSTILE_PAGES)
async def test_pages_of_any_list_are_bounded_together(problem: str):
    pages = 0

    async def answer(request: Request) -> Any:
        nonlocal pages
        pages += 1
        return {"resources": HOSTILE_PAGES[problem], "nextCursor": str(pages)}

    async with connected_client(answer) as client:
        with pytest.raises(HoldfastError, match=f"sent a resource list that {problem}"):
            async for _ in client.list_pages("resources/list", "resource"):
                pass

    assert pages <= 1002


async def test_control_without_the_limit_the_pages_of_one_list_fill_the_memory():
    size = 0

    async def answer(request: Request) -> Any:
        return {"resources": [{"uri": "x" * MAX_LIST_BYTES}], "nextCursor": "more"}

    async with connected_client(answer) as client:
        for _ in range(4):
            size += len(await client.request("resources/list"))

    assert size > 4 * MAX_LIST_BYTES


# Schemas in the pages of a remote server


def page_of_many_arguments(count: int, length: int = 0) -> bytes:
    """A page with one tool. The names of its arguments have at least this length."""
    arguments = b",".join(
        b'"a%0*d":{"type":"string","x-mcp-header":"A"}' % (length, number) for number in range(count)
    )
    return b'{"tools":[{"name":"go","inputSchema":{"type":"object","properties":{%b}}}]}' % arguments


@pytest.mark.parametrize(
    ("page", "problem", "threads"),
    [
        (page_of_many_arguments(60_000), "more than 100000 values", []),
        (page_of_many_arguments(20_000, 200), "more than 4194304 bytes", []),
        (page_of_many_arguments(2000), "", ["holdfast-parse"]),
    ],
    ids=["many values", "many bytes", "allowed"],
)
async def test_schemas_of_a_remote_server_are_parsed_after_the_check_and_off_the_event_loop(
    make_host: HostFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: bytes,
    problem: str,
    threads: list[str],
):
    seen: list[str] = []
    find = param_headers._find_marked_in_tools  # pyright: ignore[reportPrivateUsage]

    def spy(tools: Sequence[Tool]) -> Any:
        if tools:
            seen.append(threading.current_thread().name)
        return find(tools)

    async def answer(scripted: ScriptedServer, request: Any, message: dict[str, Any]) -> Any:
        if message.get("method") != "tools/list":
            return None
        body = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], page)
        return Response(body, media_type="application/json")

    monkeypatch.setattr(param_headers, "_find_marked_in_tools", spy)
    scripted = ScriptedServer(answer)
    async with (
        serve(scripted) as url,
        make_host({"web": http_entry(url)}, options=connect_options()) as host,
        host.session(cwd=tmp_path) as session,
    ):
        refused = "".join(refusal.reason for refusal in session.refusals)
        await session.call("web.go", {"a1": "b"})

    assert (seen, problem in refused, bool(problem)) == (threads, True, bool(refused))
    assert [headers.get("mcp-param-a") for headers, _ in scripted.calls()] == ([] if problem else ["b"])


def test_control_without_a_limit_the_cost_of_parsing_grows_with_the_page():
    def parse(arguments: int) -> None:
        page = page_of_many_arguments(arguments).replace(b"x-mcp-header", b"x-other")
        tool = Tool(name="go", input_schema=Raw(page[page.index(b'{"type"') : -3]))
        param_headers._find_marked_in_tools([tool])  # pyright: ignore[reportPrivateUsage]

    assert least_cpu_seconds(lambda: parse(60_000)) > 4 * least_cpu_seconds(lambda: parse(6000))


@pytest.mark.slow
async def test_control_following_every_cursor_never_ends(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry("--endless")}) as host, host.session(cwd=tmp_path) as session:
        _, connection = await host.links.connect(session.scope, session.server("c"))
        cursor = ""
        for _ in range(2000):
            page = await connection.request("resources/list", {"cursor": cursor} if cursor else {})
            assert b"nextCursor" in bytes(page)
            cursor = "again"
