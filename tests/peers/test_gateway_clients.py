"""Third-party clients through the gateway: each works as with the server itself, and keeps its own session.

Each client runs in each era that it supports, in front of a toolkit server. Without HOLDFAST_SLOW=1
(`make peers`), only a few combinations run.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client import Client as FastMcpClient
from mcp import Client

from tests.peers.spawn import HERE, PACKAGES, node, python
from tests.peers.test_toolkit_clients import CLIENTS, conversation, expected
from tests.toolkit.server_process import ROOT, run_http_server

SERVER = {
    "toolkit": {
        "command": sys.executable,
        "args": [str(HERE / "toolkit_server.py")],
        "env": {"PYTHONPATH": str(ROOT)},
    }
}
FEW = {
    ("fastmcp", "handshake"),
    ("typescript-sdk-2", "modern"),
}
MATRIX = [
    pytest.param(name, era, id=f"{name}-{era}")
    for name, (_, _, eras) in CLIENTS.items()
    for era in eras
    if os.environ.get("HOLDFAST_SLOW") == "1" or (name, era) in FEW
]


@contextmanager
def gateway(servers: dict[str, Any]) -> Iterator[str]:
    with run_http_server("tests.gateway.gateway_process", json.dumps(servers)) as url:
        yield url


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize(("name", "era"), MATRIX)
def test_a_client_works_as_with_the_server_itself(name: str, era: str):
    script, library, _ = CLIENTS[name]
    with gateway(SERVER) as url:
        command = [*(node(script) if script.endswith(".mjs") else python(script)), library, era, url]
        transcript = conversation(command)

    if (name, era) == ("typescript-sdk-2", "modern"):
        # The specification requires a 404 here; this client turns it into an error of its own.
        assert transcript.pop("unknown method") == "CLIENT_HTTP_NOT_IMPLEMENTED"
        assert ["no/such/method" in error for error in transcript.pop("errors")] == [True]
        transcript |= {"unknown method": -32601, "errors": []}
    assert transcript.pop("server")[0] == "holdfast"

    wanted = expected(era, "http")
    del wanted["server"]
    assert transcript == wanted


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("GW-01")
@pytest.mark.parametrize("confined", [True, False], ids=["confined", "control"])
async def test_two_clients_of_the_memory_server_keep_separate_graphs(tmp_path: Path, *, confined: bool):
    """The server keeps its graph in a file, so each session needs a folder of its own: a confined server has one.

    The control uses one file for both.
    """
    file = "/tmp/memory.jsonl" if confined else str(tmp_path / "memory.jsonl")
    entry = {"command": str(PACKAGES / ".bin" / "mcp-server-memory"), "env": {"MEMORY_FILE_PATH": file}}
    graph = {"entities": [{"name": "ours", "entityType": "thing", "observations": ["of the first"]}]}

    with gateway({"memory": {**entry, "confined": confined}}) as url:
        async with Client(url, mode="legacy") as first, FastMcpClient(url, mode="auto") as second:
            await first.call_tool("create_entities", graph)
            seen = [
                "of the first" in text(await first.call_tool("read_graph", {})),
                "of the first" in text(await second.call_tool_mcp("read_graph", {})),
            ]

    assert seen == [True, not confined]


def text(result: Any) -> str:
    return result.content[0].text
