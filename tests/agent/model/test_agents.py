"""Agents whose model is a scripted endpoint: sub-agents and their parent share servers and a budget, and end together."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

from holdfast import Host, JsonObject, Session
from holdfast.agent.model.usage import sum_usage
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.events import ModelResponded, Replied, SessionClosed, StopReason, ToolCalled, ToolEnded
from holdfast.host.open_options import OpenOptions
from holdfast.host.server_config import parse_servers
from holdfast.model.ids import SessionId
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.store.query import SessionQuery, Visibility
from holdfast.testing.scripted_model import Call, Fail, ModelRequest, RawAnswer, ScriptedModel, Step, answer
from holdfast.wire.mcp.eras import Era
from tests.agent.model.sessions import model_settings
from tests.connect.web import connect_options, http_entry, serve

pytestmark = pytest.mark.anyio

SUB_AGENT = "You are a sub-agent"


@dataclass
class Server:
    """A stateful server, and what happened to it."""

    entry: dict[str, Any]
    opened: Counter[str] = field(default_factory=Counter[str])
    closed: Counter[str] = field(default_factory=Counter[str])


STDIO = """
import asyncio, os, sys
from holdfast.toolkit import Toolbox

box = Toolbox("counter")
count = 0

@box.tool()
def add() -> str:
    "Count."
    global count
    count += 1
    return f"{count} in {os.getpid()}"

log = open(sys.argv.pop(), "a", buffering=1)
log.write(f"opened {os.getpid()}\\n")
try:
    box.main()
finally:
    log.write(f"closed {os.getpid()}\\n")
"""


@asynccontextmanager
async def stdio_server(folder: Path) -> AsyncIterator[Server]:
    program, log = folder / "counter.py", folder / "log"
    program.write_text(STDIO)
    server = Server(entry={"command": sys.executable, "args": [str(program), str(log)]})
    yield server
    for line in log.read_text().splitlines():
        word, pid = line.split()
        (server.opened if word == "opened" else server.closed)[pid] += 1


@asynccontextmanager
async def http_server(folder: Path) -> AsyncIterator[Server]:
    """A server of the official SDK over HTTP, which counts the calls of each MCP session."""
    sdk = MCPServer("counter", version="1")
    counts = Counter[str]()

    @sdk.tool()
    def add(context: Context) -> str:
        """Count."""
        session = (context.headers or {}).get("mcp-session-id", "none")
        counts[session] += 1
        return f"{counts[session]} in {session}"

    app: Any = sdk.streamable_http_app()
    server = Server(entry={})

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
            if scope["method"] == "DELETE":
                server.closed[session] += 1
            elif session:
                server.opened[session] = 1
        await app(scope, receive, send)

    async with serve(counting) as url:
        server.entry = http_entry(url)
        yield server


@asynccontextmanager
async def opened(
    folder: Path, script: Any, era: Era | None = None, **options: Any
) -> AsyncIterator[tuple[Host, Session]]:
    """A session with the model of the script, in mode `auto`, with the built-in servers for agents."""
    project = folder / "project"
    project.mkdir(exist_ok=True, parents=True)
    servers = parse_servers(options.pop("servers", {}))
    async with ScriptedModel(script) as endpoint:
        loaded = model_settings(folder, endpoint, more=options.pop("model", {}))
        agents = replace(loaded.agents, **options.pop("agents", {}))
        links = replace(loaded.links, wait_seconds=60)
        loaded = replace(loaded, file=folder / "config" / "config.toml", agents=agents, links=links)
        # A busy machine may need long to end a server by itself.
        options_of_links = replace(connect_options(era), end_seconds=30.0)
        async with Host(settings=loaded, connect_options=options_of_links) as host:
            host.registry.add(project, trust=Trust.DIRECT)
            session = await host.open(
                OpenOptions(
                    cwd=project, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO, servers=servers, **options
                )
            )
            await session.wait_ready()
            yield host, session
            await session.close()


@pytest.mark.promise("TEAM-06", "TEAM-08", "LNK-02")
@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
@pytest.mark.parametrize("transport", [stdio_server, http_server], ids=["stdio", "http"])
async def test_two_tools_and_a_sub_agent_at_once_use_one_server_with_one_state(
    tmp_path: Path, transport: Any, *, crash: bool
):
    def respond(request: ModelRequest) -> Step:
        results = [*request.tool_results.values()]
        if SUB_AGENT in request.instructions:
            if not results:
                return answer("I count.", Call("counter__add", {}))
            return Fail(status=400, message="crash") if crash else answer(f"I counted {results[0]}")
        if results:
            return answer(f"All: {results}")
        return answer(
            Call("counter__add", {}),
            Call("counter__add", {}),
            Call("agents__delegate", {"task": "Count once."}),
        )

    async with (
        transport(tmp_path) as server,
        opened(tmp_path, respond, Era.HANDSHAKE, servers={"counter": server.entry}) as (host, session),
    ):
        await session.prompt("Count")
        last = await session.call("counter.add", {})
        stored = [event async for event in host.store.events(session.context.session_id)]
        await session.close()

    called = {event.event.call_id: event for event in stored if isinstance(event.event, ToolCalled)}
    (delegated,) = [call for call, event in called.items() if event.event.tool == "delegate"]  # type: ignore[union-attr]
    texts = {
        event.event.call_id: str(event.event.content)
        for event in stored
        if isinstance(event.event, ToolEnded)
    }
    counted = [texts[call] for call, event in called.items() if event.event.tool == "add"]  # type: ignore[union-attr]
    states = {text.partition(" in ")[2].split("'")[0].split('"')[0] for text in counted}
    assert len(counted) == 4
    assert len(states) == 1, "all four calls reached one process, one state"
    assert "4 in " in last.text
    assert sum(server.opened.values()) == 1
    assert [*server.closed.values()] == [1], "closed once"
    of_sub_agent = [event for event in stored if event.agent]
    assert {event.parent_call for event in of_sub_agent} == {delegated}
    assert {type(event.event) for event in of_sub_agent} >= {Replied, ToolCalled, ToolEnded, ModelResponded}
    assert ("I counted" in texts[delegated]) is not crash


@pytest.mark.promise("TEAM-08")
async def test_an_isolated_sub_agent_has_servers_of_its_own_which_end_with_it(tmp_path: Path):
    def respond(request: ModelRequest) -> Step:
        results = [*request.tool_results.values()]
        if SUB_AGENT in request.instructions:
            return answer(f"I counted {results[0]}") if results else answer(Call("counter__add", {}))
        if results:
            return answer("Done.")
        return answer(
            Call("counter__add", {}), Call("agents__delegate", {"task": "Count.", "isolated": True})
        )

    async with (
        stdio_server(tmp_path) as server,
        opened(tmp_path, respond, servers={"counter": server.entry}) as (host, session),
    ):
        await session.prompt("Count")
        log = (tmp_path / "log").read_text()
        last = await session.call("counter.add", {})
        page = await host.store.sessions(SessionQuery(visibility=Visibility(user_id="")))
        children = [
            stored.context.session_id
            for stored in page.items
            if stored.context.parent_session_id == session.context.session_id
        ]
        (child,) = children
        kept = [stored.event async for stored in host.store.events(SessionId(child))]

    assert (log.count("opened"), log.count("closed")) == (2, 1), "its server ended with it"
    assert "2 in " in last.text, "the state of its parent's server is untouched"
    assert any(isinstance(event, ToolEnded) and "1 in " in str(event.content) for event in kept)
    assert isinstance(kept[-1], SessionClosed)


@pytest.mark.promise("AGT-12")
async def test_the_calls_of_a_sub_agent_are_counted_for_it(tmp_path: Path):
    def respond(request: ModelRequest) -> Step:
        if request.tool_results:
            return answer("Done.")
        is_sub_agent = SUB_AGENT in request.instructions
        return answer(
            Call("files__list", {"path": "."})
            if is_sub_agent
            else Call("agents__delegate", {"task": "Look."})
        )

    async with opened(tmp_path, respond) as (host, session):
        await session.prompt("Go")
        used = await sum_usage(host.store.events(session.context.session_id))

    assert (
        sorted(usage.describe() for usage in used.values())
        == ["200 tokens in, 40 out, 2 requests, 1 call (2 requests without a known price)"] * 2
    )


async def test_a_model_can_name_the_tools_of_a_sub_agent_as_it_sees_them(tmp_path: Path):
    offered: list[tuple[str, ...]] = []

    def respond(request: ModelRequest) -> Step:
        if SUB_AGENT in request.instructions:
            offered.append(request.tools)
            return answer("Done.")
        if request.tool_results:
            return answer(*request.tool_results.values())
        tools = ["files__read", "files.list"] if "both" in request.prompt else ["files__*"]
        return answer(Call("agents__delegate", {"task": "Look.", "tools": [*tools]}))

    async with opened(tmp_path, respond) as (_, session):
        await session.prompt("both forms")
        failed = await session.prompt("a pattern")

    assert offered == [("files__read", "files__list")]
    assert "write 'files.*'" in failed.text


def define(folder: Path, head: str, name: str = "worker") -> None:
    agents = folder / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / f"{name}.md").write_text(f"---\n{head}\n---\nWork.\n")


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("isolated", [False, True], ids=["delegate", "isolated"])
async def test_sub_agents_spend_the_budget_of_their_root_and_not_more(tmp_path: Path, *, isolated: bool):
    define(tmp_path, "budget:\n  tokens: 5000")
    spent = Counter[str]()

    def respond(request: ModelRequest) -> Step:
        is_sub_agent = SUB_AGENT in request.instructions
        spent["sub-agent" if is_sub_agent else "root"] += 1000
        if is_sub_agent:
            return answer(Call("files__list", {"path": "."}), input_tokens=900, output_tokens=100)
        task: JsonObject = {"task": "Go on without end.", "isolated": isolated}
        return answer(*[Call("agents__delegate", task)] * 3, input_tokens=900, output_tokens=100)

    async with opened(tmp_path, respond, agent_name="worker") as (host, session):
        await session.prompt("Go")
        replies = "".join(
            [
                stored.event.text
                async for stored in host.store.events(session.context.session_id)
                if isinstance(stored.event, Replied) and not stored.agent
            ]
        )
        children = session.budget.sub_agents

    # Only the last request that was started may pass the limit.
    assert 5000 <= sum(spent.values()) <= 6000
    assert spent["sub-agent"] >= 3000
    assert "budget of 5000 tokens is used up" in replies
    assert children == 0


@pytest.mark.promise("TEAM-07")
async def test_a_session_that_an_agent_created_spends_the_same_budget(tmp_path: Path):
    define(tmp_path, "budget:\n  tokens: 9000")
    spent = Counter[str]()

    def respond(request: ModelRequest) -> Step:
        is_child = "Forever." in str(request.messages)
        spent["child" if is_child else "root"] += 3000
        if is_child:
            return answer(Call("files__list", {"path": "."}), input_tokens=2900, output_tokens=100)
        if request.tool_results:
            return answer("Created.", input_tokens=2900, output_tokens=100)
        created: JsonObject = {"title": "child", "initial_message": "Forever."}
        return answer(Call("team__create_session", created), input_tokens=2900, output_tokens=100)

    async with opened(tmp_path, respond, agent_name="worker") as (_, session):
        await session.prompt("Create one")
        (child,) = session.children.owned
        async with asyncio.timeout(60):
            while child.is_busy:
                await asyncio.sleep(0.01)
        again = await session.prompt("Go on")

    assert again.reason is StopReason.END_TURN
    assert sum(spent.values()) <= 12_000
    assert spent["child"] >= 3000


@pytest.mark.slow
@pytest.mark.promise("AGT-07")
@pytest.mark.parametrize("isolated", [False, True], ids=["delegate", "isolated"])
async def test_the_limits_of_a_turn_are_for_all_of_its_agents_together(tmp_path: Path, *, isolated: bool):
    def loop(request: ModelRequest) -> Step:
        if SUB_AGENT in request.instructions:
            return answer(Call("files__list", {"path": "."}))
        return answer(*[Call("agents__delegate", {"task": "Go on.", "isolated": isolated})] * 3)

    seen: list[ModelRequest] = []

    def respond(request: ModelRequest) -> Step:
        seen.append(request)
        return loop(request)

    async with opened(tmp_path, respond, model={"max_requests": 8}) as (_, session):
        first = await session.prompt("Go")
        of_first = len(seen)
        await session.prompt("Go on")

    assert first.reason is StopReason.MAX_TURN_REQUESTS
    assert (of_first, len(seen)) == (8, 16), "each turn has its own limit"


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize(("depth", "reached"), [(0, 0), (1, 1), (2, 2)])
async def test_agents_start_others_as_deep_as_the_setting_says(tmp_path: Path, depth: int, reached: int):
    offered: list[bool] = []

    def respond(request: ModelRequest) -> Step:
        offered.append("agents__delegate" in str(request.body.get("tools", "")))
        if request.tool_results or not offered[-1]:
            return answer("Done.")
        return answer(Call("agents__delegate", {"task": "Deeper."}))

    async with opened(tmp_path, respond, agents={"max_depth": depth}) as (host, session):
        await session.prompt("Go")
        events = [stored async for stored in host.store.events(session.context.session_id)]

    assert len({stored.agent for stored in events if stored.agent}) == reached
    assert offered.count(False) >= 1, "at the limit, the tool is absent"


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("reports", [True, False], ids=["reported", "not reported"])
async def test_a_budget_in_tokens_ends_a_model_whose_endpoint_reports_no_usage(
    tmp_path: Path, *, reports: bool
):
    define(tmp_path, "budget:\n  tokens: 5000")
    requests = 0

    def loop(request: ModelRequest) -> Step:
        nonlocal requests
        requests += 1
        used = 1000 if reports else 0
        return answer("words " * 100, Call("files__list", {"path": "."}), input_tokens=used, output_tokens=0)

    async with opened(tmp_path, loop, agent_name="worker", model={"max_requests": 50}) as (host, session):
        result = await session.prompt("Go")
        replies = "".join(
            [
                stored.event.text
                async for stored in host.store.events(session.context.session_id)
                if isinstance(stored.event, Replied)
            ]
        )

    assert result.reason is StopReason.END_TURN
    assert "budget of 5000 tokens is used up" in replies
    assert requests < 50


@pytest.mark.slow
@pytest.mark.parametrize("limit", [5, 1000], ids=["limited", "control"])
async def test_two_sessions_cannot_answer_each_other_without_end(tmp_path: Path, limit: int):
    enough = asyncio.Event()
    sent = 0

    def reply(request: ModelRequest) -> Step:
        nonlocal sent
        if request.tool_results and request.messages[-1].role == "tool":
            return answer("Sent.")
        sent += 1
        if sent > 10:
            enough.set()
            return answer("Enough.")
        other = two if sent % 2 else one
        return answer(Call("team__send_message", {"session_id": other, "text": "Answer me."}))

    async with opened(tmp_path, reply, agents={"max_messages_per_hour": limit}) as (host, session):
        options = OpenOptions(cwd=tmp_path / "project", extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
        second = await host.open(options)
        await second.wait_ready()
        one, two = session.context.session_id, second.context.session_id
        await session.prompt("Begin")
        async with asyncio.timeout(60):
            while (session.is_busy or second.is_busy) if limit == 5 else not enough.is_set():
                await asyncio.sleep(0.01)

    assert (sent > 10) is (limit > 5)


async def test_half_a_character_in_an_id_or_a_name_does_not_end_the_turn(tmp_path: Path):
    call: JsonObject = {
        "index": 0,
        "id": "call\ud83d",
        "type": "function",
        "function": {"name": "files\ud83d", "arguments": '{"path": "\ud83d"}'},
    }
    parts: list[JsonObject] = [
        {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": "Half \ud83d", "tool_calls": [call]}}
            ]
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    lines = [
        json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", **event})
        for event in parts
    ]
    body = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()

    async with opened(tmp_path, [RawAnswer(body=body), answer("Fine."), answer("Again.")]) as (host, session):
        await session.prompt("Go")
        await session.prompt("Go on")
        replies = "".join(
            [
                stored.event.text
                async for stored in host.store.events(session.context.session_id)
                if isinstance(stored.event, Replied)
            ]
        )

    assert replies == "Half ?Fine.Again."
