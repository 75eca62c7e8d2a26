"""Third-party clients against a toolkit server: the same conversation with each, over stdio and HTTP.

Each client runs over one transport in each era that it supports; with HOLDFAST_SLOW=1 (`make peers`) over both.
"""

import json
import os
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest

from tests.peers.spawn import node, node_server, python
from tests.toolkit.server_process import run_http_server

SERVER = "tests.peers.toolkit_server"
CLIENTS = {
    "python-sdk": ("python_clients.py", "sdk", ("handshake", "modern")),
    "fastmcp": ("python_clients.py", "fastmcp", ("handshake", "modern")),
    "typescript-sdk-1": ("typescript_clients.mjs", "1", ("handshake",)),
    "typescript-sdk-2": ("typescript_clients.mjs", "2", ("handshake", "modern")),
}
PAIRS = {
    *[("python-sdk", "stdio", "modern"), ("fastmcp", "http", "handshake")],
    *[("typescript-sdk-1", "http", "handshake")],
    *[("typescript-sdk-2", "stdio", "handshake"), ("typescript-sdk-2", "http", "modern")],
}
MATRIX = [
    pytest.param(name, transport, era, id=f"{name}-{transport}-{era}")
    for name, (_, _, eras) in CLIENTS.items()
    for transport in ("stdio", "http")
    for era in eras
    if os.environ.get("HOLDFAST_SLOW") == "1" or (name, transport, era) in PAIRS
]


@pytest.mark.slow
@pytest.mark.promise("KIT-18")
@pytest.mark.parametrize(("name", "transport", "era"), MATRIX)
def test_client_works_with_a_toolkit_server(name: str, transport: str, era: str):
    script, library, _ = CLIENTS[name]
    with ExitStack() as ends:
        server = (
            [ends.enter_context(run_http_server(SERVER))]
            if transport == "http"
            else python("toolkit_server.py")
        )
        transcript = conversation(
            [*(node(script) if script.endswith(".mjs") else python(script)), library, era, *server]
        )

    if (name, transport, era) == ("typescript-sdk-2", "http", "modern"):
        # The specification requires a 404 here; this client turns it into an error of its own.
        assert transcript.pop("unknown method") == "CLIENT_HTTP_NOT_IMPLEMENTED"
        assert ["no/such/method" in error for error in transcript.pop("errors")] == [True]
        transcript |= {"unknown method": -32601, "errors": []}

    assert transcript == expected(era, transport)


@pytest.mark.promise("KIT-18")
@pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.slow)])
def test_inspector_works_with_a_toolkit_server(transport: str, tmp_path: Any):
    with ExitStack() as ends:
        server = (
            [ends.enter_context(run_http_server(SERVER))]
            if transport == "http"
            else python("toolkit_server.py")
        )

        def inspect(*arguments: str) -> Any:
            command = node_server("mcp-inspector", "--cli", *server, *arguments)
            home = {**os.environ, "HOME": str(tmp_path)}
            done = subprocess.run(command, capture_output=True, timeout=30, check=False, env=home)
            assert done.stdout, done.stderr.decode()
            return json.loads(done.stdout)

        listed = inspect("--method", "tools/list")
        echoed = inspect("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hi")

    assert sorted(tool["name"] for tool in listed["tools"]) == sorted(TOOLS)
    assert (echoed["structuredContent"]["ok"], echoed["structuredContent"]["result"]) == (True, "hi")


TOOLS = ["cancelled", "count", "echo", "fail", "shout", "wait"]


def conversation(command: list[str]) -> Any:
    client = subprocess.run(command, capture_output=True, timeout=40, check=False)
    assert client.returncode == 0, client.stderr.decode()
    transcript = json.loads(client.stdout)
    for key in ("echo", "fail", "shout", "cancelled"):
        transcript[key] = _envelope(transcript[key])
    transcript["count"] = [_envelope(count) for count in transcript["count"]]
    transcript["stderr"] = [
        line for line in transcript["stderr"] if line and "toolkit.authentication" not in line
    ]
    return transcript


def _envelope(answer: list[Any]) -> list[Any]:
    """The relevant part of an envelope: `ok`, and its result or code."""
    is_error, text = answer
    envelope = json.loads(text)
    assert envelope["ok"] is not is_error
    return [is_error, envelope["code"] if is_error else envelope["result"]]


def expected(era: str, transport: str) -> dict[str, Any]:
    return {
        "server": ["toolkit-server", "1.2.3", "Echo and count."],
        "era": era,
        "tools": TOOLS,
        "echo": [False, "häß \U0001f41a"],
        "count": [[False, 1], [False, 2]],
        "fail": [True, "DENIED"],
        "unknown tool": -32602,
        "unknown method": -32601,
        "shout": [False, "shouted"],
        "progress": {"progress": 1, "total": 2},
        "cancelled": [False, 1],
        "stderr": ["a print() in a handler", "a child of a handler"] if transport == "stdio" else [],
        "errors": [],
    }
