"""Third-party clients against our server: each has the same conversation with it."""

import asyncio
import subprocess
from typing import Any

import msgspec
import pytest

from tests.peers.spawn import node, python

MATRIX = pytest.mark.slow


@pytest.mark.anyio
@pytest.mark.promise("LNK-14")
@pytest.mark.parametrize(
    ("script", "library", "era"),
    [
        pytest.param("python_clients.py", "sdk", "modern", id="python-sdk-modern"),
        pytest.param("python_clients.py", "sdk", "handshake", id="python-sdk-handshake", marks=MATRIX),
        pytest.param("python_clients.py", "fastmcp", "modern", id="fastmcp-modern", marks=MATRIX),
        pytest.param("python_clients.py", "fastmcp", "handshake", id="fastmcp-handshake"),
        pytest.param("typescript_clients.mjs", "2", "modern", id="typescript-sdk-2-modern"),
        pytest.param("typescript_clients.mjs", "2", "handshake", id="typescript-sdk-2-handshake"),
    ],
)
async def test_server_works_in_both_eras_with(script: str, library: str, era: str):
    assert await conversation(script, library, era) == expected(era)


@pytest.mark.anyio
async def test_server_works_with_the_first_typescript_sdk():
    assert await conversation("typescript_clients.mjs", "1", "handshake") == expected("handshake")


async def conversation(script: str, library: str, era: str) -> Any:
    command = node(script) if script.endswith(".mjs") else python(script)
    client = await asyncio.to_thread(
        subprocess.run, [*command, library, era, *python("our_server.py")], capture_output=True, timeout=20
    )
    assert client.returncode == 0, client.stderr.decode()
    return msgspec.json.decode(client.stdout)


def expected(era: str) -> dict[str, Any]:
    return {
        "server": ["our-server", "1.2.3", "Echo and count."],
        "era": era,
        "tools": ["cancelled", "count", "echo", "fail", "shout", "wait"],
        "echo": [False, "häß \U0001f41a"],
        "count": [[False, "1"], [False, "2"]],
        "fail": [True, "as asked"],
        "unknown tool": -32602,
        "unknown method": -32601,
        "shout": [False, "shouted"],
        "progress": {"progress": 1, "total": 2},
        "cancelled": [False, "1"],
        "stderr": ["a print() in a handler", "a child of a handler"],
        "errors": [],
    }
