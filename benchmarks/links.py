"""Links over stdio, compared with the bare wire and with other clients on the same servers.

A call through a link is measured without a store (`connect` alone), and a session's call with everything: it is on
disk before it returns. Such a call needs at least the wire and two commits, one before the call is sent and one before its
result is returned. Opening is measured with ten servers; `many_sessions` measures more.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastmcp
import msgspec
from fastmcp.client.transports import StdioTransport
from mcp.client.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from benchmarks.environment import python_of
from benchmarks.langchain_peer import langchain
from benchmarks.result import Result
from benchmarks.turns import local_client, side_by_side
from benchmarks.wire import ME, SERVERS, TEXT, Call, calls_for, our_echo, start
from holdfast import settings
from holdfast.connect.call import call
from holdfast.connect.catalog import build_catalog
from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import ServerMessages
from holdfast.connect.server_requests import ServerRequests
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.event import ToolStarted
from holdfast.model.ids import new_session_id
from holdfast.model.light_event import LightEvent
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from holdfast.store.memory import MemoryStore
from holdfast.store.types import NewSession
from holdfast.wire.mcp.client import Client, negotiate
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

OURS = [sys.executable, str(SERVERS / "ours.py")]
ARGUMENTS = {"text": TEXT}
PROCESSES, WIRE_TURNS, WIRE_SECONDS = 4, 30, 0.03
OVER_PARTS_MS = 0.2  # what a durable call may take besides the wire and its two commits
CALLERS, CALLER_ROUNDS, CALLER_SECONDS = 16, 9, 0.25


def results() -> list[Result]:
    return [_compare_with_bare_wire(), *_compare_clients(), _compare_callers(), *_compare_opening()]


def _compare_with_bare_wire() -> Result:
    """The cost of a link: the same wire to the same process, bare and with a link, in many short turns."""
    pairs = [pair for _ in range(PROCESSES) for pair in asyncio.run(_measure_bare_and_linked())]
    bare, linked = (statistics.median(figures) for figures in zip(*pairs, strict=True))
    return Result(
        name="link.call.p50",
        ours=linked,
        peer=bare,
        peer_name="the bare wire to the same process",
        unit="ms",
        goal="<= 1.25",
    )


async def _measure_bare_and_linked() -> list[tuple[float, float]]:
    process = start("ours.py")
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with connect_pipes(Peer(), process.stdout, process.stdin) as peer:
            client = await negotiate(peer, ME)
            bare, linked = local_client(lambda: bare_echo(client)), local_client(lambda: link_echo(client))
            async with bare() as one, linked() as other:
                pairs = [(await one(WIRE_SECONDS), await other(WIRE_SECONDS)) for _ in range(WIRE_TURNS)]
        return pairs[WIRE_TURNS // 10 :]  # drop the warm-up
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def bare_echo(client: Client) -> AsyncIterator[Call]:
    async def echo() -> str:
        result = await client.call_tool("echo", ARGUMENTS)
        return msgspec.json.decode(result.content[0], type=Block).text

    yield echo


@asynccontextmanager
async def link_echo(client: Client) -> AsyncIterator[Call]:
    """`connect.call` alone: no store, no audit."""
    spec = ServerSpec(name="echo", source=Source.USER, transport=Stdio(command=OURS[0]))
    server_messages = ServerMessages(ServerRequests(spec, None))

    @asynccontextmanager
    async def connect(spec: ServerSpec, scope: Scope | None) -> AsyncIterator[Connection]:
        yield Connection(client, ended=LightEvent(), server_messages=server_messages)

    links = LinkPool(connect)
    scope = Scope(SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT, cwd="/"))
    (tool,) = build_catalog([(spec, [Tool(name="echo")])]).tools
    arguments = msgspec.json.encode(ARGUMENTS)
    tool_call = ToolCall(call_id="call_1", server="echo", tool="echo", arguments=arguments)

    async def echo() -> str:
        result = await call(links, scope, tool, tool_call, timeout=60)
        return msgspec.json.decode(result.result.content[0], type=Block).text

    yield echo
    await links.close()


def _compare_clients() -> list[Result]:
    """All clients on the same server, taking turns."""
    python = python_of("langchain")
    durable = DurableHost()
    clients = {
        "wire": local_client(our_echo),
        "link": local_client(hosted_link_echo),
        "session": local_client(durable.session_echo),
        "commit": local_client(durable.commit),
        "parts": local_client(durable.parts),
        "memory": local_client(memory_session_echo),
        "mcp SDK client": local_client(sdk_client_echo),
        "FastMCP client": local_client(fastmcp_client_echo),
        "langchain-mcp-adapters": langchain(python, "session", OURS),
    }
    process_per_call = {
        "a process per call": local_client(sdk_client_per_call_echo),
        "langchain, a process per call": langchain(python, "default", OURS),
    }
    p50 = asyncio.run(side_by_side(clients)) | asyncio.run(side_by_side(process_per_call, turns=5))

    def compared(name: str, ours: str, peer: str, goal: str = "") -> Result:
        return Result(
            name=f"link.{name}", ours=p50[ours], peer=p50[peer], peer_name=peer, unit="ms", goal=goal
        )

    return [
        compared("call.p50.sdk", "link", "mcp SDK client", "<= 0.5"),
        compared("call.p50.fastmcp", "link", "FastMCP client", "<= 0.5"),
        compared("call.p50.langchain", "link", "langchain-mcp-adapters", "<= 0.5"),
        compared("call.p50.per_call", "link", "a process per call", "<= 0.02"),
        compared("call.p50.langchain_default", "link", "langchain, a process per call", "<= 0.02"),
        compared("session.p50.memory", "memory", "wire", "<= 2.5"),
        Result(
            name="link.session.p50.durable",
            ours=p50["session"],
            peer=p50["parts"] + OVER_PARTS_MS,
            peer_name=f"a commit of one row, the wire and another commit, in turn ({p50['parts']:.3f}), + {OVER_PARTS_MS}; "
            f"measured alone, they take {p50['wire']:.3f} + 2 x {p50['commit']:.3f}",
            unit="ms",
            goal="<= 1",
        ),
        compared("session.p50.sdk", "session", "mcp SDK client"),
    ]


def _compare_callers() -> Result:
    """Concurrent callers share commits."""
    one, many = asyncio.run(_measure_callers())
    return Result(
        name="session.calls16",
        ours=many,
        peer=one,
        peer_name=f"one caller; ours: {CALLERS} at once in one session, durable",
        unit="calls/s",
        goal=">= 3",
    )


async def _measure_callers() -> tuple[float, float]:
    """The calls per second of one caller and of many, taking turns: the medians."""
    rounds: list[tuple[float, float]] = []
    async with open_session(durable=True) as (_, session):
        echo = _echo_through(session)
        for number in range(CALLER_ROUNDS + 1):
            pair = await _calls_per_s(echo, 1), await _calls_per_s(echo, CALLERS)
            if number:  # the first round warms up
                rounds.append(pair)
    one, many = zip(*rounds, strict=True)
    return statistics.median(one), statistics.median(many)


async def _calls_per_s(call: Call, callers: int) -> float:
    began = time.perf_counter()
    made = await asyncio.gather(*(calls_for(CALLER_SECONDS, call) for _ in range(callers)))
    return sum(map(len, made)) / (time.perf_counter() - began)


class Block(msgspec.Struct):
    text: str


@asynccontextmanager
async def hosted_link_echo() -> AsyncIterator[Call]:
    """`connect.call` alone, on a host's own link: no store, no audit."""
    async with open_session() as (host, session):
        (tool,) = [tool for tool in await session.tools() if tool.name == "echo.echo"]
        arguments = msgspec.json.encode(ARGUMENTS)
        tool_call = ToolCall(call_id="call_1", server="echo", tool="echo", arguments=arguments)

        async def echo() -> str:
            result = await call(host.links, session.scope, tool, tool_call, timeout=60)
            return msgspec.json.decode(result.result.content[0], type=Block).text

        yield echo


class DurableHost:
    """A host with a store on disk, for calls and for bare commits through the same writer thread."""

    def __init__(self) -> None:
        self._host: Host

    @asynccontextmanager
    async def session_echo(self) -> AsyncIterator[Call]:
        """A session's call: recorded and audited, on disk before the result. Opens the host."""
        async with open_session(durable=True) as (self._host, session):
            yield _echo_through(session)

    @asynccontextmanager
    async def commit(self) -> AsyncIterator[Call]:
        """A commit of one row, after `session_echo` has opened the host."""
        store = self._host.store
        context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
        await store.create(NewSession(context=context))
        hold = await store.acquire(context.session_id)

        async def commit() -> str:
            await store.append(hold, ToolStarted(call_id="call_1"))
            return TEXT

        yield commit

    @asynccontextmanager
    async def parts(self) -> AsyncIterator[Call]:
        """What a durable call needs at least, one after the other: a commit, the wire, another commit."""
        async with self.commit() as commit, our_echo() as echo:

            async def commit_echo_commit() -> str:
                await commit()
                text = await echo()
                await commit()
                return text

            yield commit_echo_commit


@asynccontextmanager
async def memory_session_echo() -> AsyncIterator[Call]:
    """A session's call, with a store in memory."""
    async with open_session() as (_, session):
        yield _echo_through(session)


def _echo_through(session: Session) -> Call:
    async def echo() -> str:
        result = await session.call("echo.echo", ARGUMENTS)
        return msgspec.json.decode(result.result.content[0], type=Block).text

    return echo


@asynccontextmanager
async def sdk_client_echo() -> AsyncIterator[Call]:
    async with SdkClient(StdioServerParameters(command=OURS[0], args=OURS[1:])) as client:

        async def echo() -> str:
            (block,) = (await client.call_tool("echo", ARGUMENTS)).content
            assert isinstance(block, TextContent)
            return block.text

        yield echo


@asynccontextmanager
async def fastmcp_client_echo() -> AsyncIterator[Call]:
    async with fastmcp.Client(StdioTransport(command=OURS[0], args=OURS[1:])) as client:

        async def echo() -> str:
            (block,) = (await client.call_tool("echo", ARGUMENTS)).content
            assert isinstance(block, TextContent)
            return block.text

        yield echo


@asynccontextmanager
async def sdk_client_per_call_echo() -> AsyncIterator[Call]:
    """Every call connects, calls and disconnects."""

    async def echo() -> str:
        async with sdk_client_echo() as once:
            return await once()

    yield echo


def _compare_opening() -> list[Result]:
    one = statistics.median(asyncio.run(_seconds_to_open(1)) for _ in range(3))
    ten = statistics.median(asyncio.run(_seconds_to_open(10)) for _ in range(3))
    return [
        Result(
            name="link.open10",
            ours=ten * 1000,
            peer=one * 1000,
            peer_name="one such server",
            unit="ms",
            goal="<= 1.3",
        )
    ]


async def _seconds_to_open(count: int) -> float:
    # The servers sleep, like servers that wait for a network, so that the speed of this machine does not matter.
    servers = {
        f"s{number}": entry([sys.executable, "-I", "-S", str(SERVERS / "sleeper.py")])
        for number in range(count)
    }
    async with open_host(servers) as (host, folder):
        began = time.perf_counter()
        session = await host.open(OpenOptions(cwd=folder))
        await session.wait_ready()
        seconds = time.perf_counter() - began
        assert len(session.available) >= count, session.refusals
        await session.close()
    return seconds


@asynccontextmanager
async def open_session(*, durable: bool = False) -> AsyncIterator[tuple[Host, Session]]:
    async with (
        open_host({"echo": entry(OURS)}, durable=durable) as (host, folder),
        host.session(cwd=folder) as session,
    ):
        yield host, session


@asynccontextmanager
async def open_host(servers: dict[str, Any], *, durable: bool = False) -> AsyncIterator[tuple[Host, Path]]:
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "config.toml").touch()
        environ = {
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "HOLDFAST_SERVERS_USER_FILE": str(folder / "user.json"),
            "HOLDFAST_SERVERS_HOST_FILE": str(folder / "host.json"),
        }
        loaded = settings.load(folder / "config.toml", environ)
        store = None if durable else MemoryStore()
        async with Host(
            settings=loaded, servers=servers, store=store, connect_options=ConnectOptions(end_seconds=0.2)
        ) as host:
            yield host, folder


def entry(argv: list[str]) -> dict[str, Any]:
    return {"command": argv[0], "args": argv[1:]}
