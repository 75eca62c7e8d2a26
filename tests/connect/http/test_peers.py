"""Third-party servers over HTTP and SSE, each in its own process."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.server import create_proxy

from holdfast.host.open_options import OpenOptions
from tests.connect.conftest import HostFactory
from tests.connect.web import connect_options, free_port, http_entry, open_session, serve, sse_entry
from tests.peers.spawn import node_server

pytestmark = pytest.mark.anyio

MEMORY = str(Path(__file__).parents[3] / "peers" / "node_modules" / ".bin" / "mcp-server-memory")


@contextmanager
def everything(transport: str, port: int) -> Iterator[str]:
    """The reference server from npm."""
    process = subprocess.Popen(
        node_server("mcp-server-everything", transport),
        env={**os.environ, "PORT": str(port)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "port" in line:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
@pytest.mark.promise("CTX-07")
@pytest.mark.parametrize(("transport", "entry"), [("streamableHttp", http_entry), ("sse", sse_entry)])
async def test_reference_server_works_unchanged(
    make_host: HostFactory, folder: Path, transport: str, entry: Any
):
    reports: list[Any] = []
    with everything(transport, free_port()) as url:
        async with open_session(make_host, folder, {"ref": entry(url)}, connect_options()) as session:
            echoed = await session.call("ref.echo", {"message": "hi"})
            long = await session.call(
                "ref.trigger-long-running-operation",
                {"duration": 0.3, "steps": 3},
                on_progress=reports.append,
            )

    assert (echoed.text, long.ok, len(reports)) == ("Echo: hi", True, 3)


@pytest.mark.slow
@pytest.mark.promise("LNK-07")
async def test_reference_server_is_connected_again_after_a_restart(make_host: HostFactory, folder: Path):
    port = free_port()
    async with make_host({"ref": http_entry(f"http://127.0.0.1:{port}")}, options=connect_options()) as host:
        with everything("streamableHttp", port):
            session = await host.open(OpenOptions(cwd=folder))
            first = await session.call("ref.echo", {"message": "one"})
        with everything("streamableHttp", port):
            answers = [await session.call("ref.echo", {"message": "two"}) for _ in range(3)]
            await session.close()

    assert first.text == "Echo: one"
    assert sum(answer.state_lost for answer in answers) == 1
    assert [answer.content[-1]["text"] for answer in answers if answer.ok][-1] == "Echo: two"
    assert {answer.code for answer in answers if not answer.ok} <= {"CONNECTION_CLOSED"}


@pytest.mark.promise("LNK-01")
@pytest.mark.promise("CTX-07")
async def test_memory_server_behind_an_address_keeps_its_state_for_the_session(
    make_host: HostFactory, folder: Path
):
    otter = {"name": "otter", "entityType": "animal", "observations": ["holds fast to kelp"]}
    program = {"command": MEMORY, "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}}
    async with Client({"mcpServers": {"memory": program}}) as memory:  # one process, behind the address
        app = create_proxy(memory).http_app(path="/mcp")
        async with (
            serve(app) as url,
            open_session(make_host, folder, {"memory": http_entry(url)}, connect_options()) as session,
        ):
            await session.call("memory.create_entities", {"entities": [otter]})
            graph = await session.call("memory.read_graph")

    assert json.loads(graph.text) == {"entities": [otter], "relations": []}


async def test_fastmcp_server_works_unchanged(make_host: HostFactory, folder: Path):
    server: Any = FastMCP("fast")

    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    server.tool(double)
    app = server.http_app(path="/mcp")
    async with (
        serve(app) as url,
        open_session(make_host, folder, {"fast": http_entry(url)}, connect_options()) as session,
    ):
        answers = await asyncio.gather(*(session.call("fast.double", {"n": n}) for n in range(10)))

    assert [answer.data["result"] for answer in answers] == [2 * n for n in range(10)]
