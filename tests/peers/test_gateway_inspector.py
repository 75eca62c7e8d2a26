"""MCP Inspector's command line, unmodified, against the gateway, in both eras."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import running_gateway

pytestmark = pytest.mark.anyio

INSPECTOR = Path(__file__).parents[2] / "peers" / "node_modules" / ".bin" / "mcp-inspector"


async def inspect(url: str, token: str, *options: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        str(INSPECTOR),
        "--cli",
        url,
        "--transport",
        "http",
        "--header",
        f"Authorization: Bearer {token}",
        *options,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return json.loads(output)


@pytest.mark.slow
@pytest.mark.skipif(not INSPECTOR.exists(), reason="MCP Inspector is not installed (make setup)")
@pytest.mark.promise("GW-01")
async def test_inspector_lists_and_calls_tools_in_both_eras(tmp_path: Path):
    call = ("--method", "tools/call", "--tool-name", "add")
    async with running_gateway(tmp_path) as running:
        token, other = running.token("one"), running.token("two")
        listed = await inspect(running.url, token, "--method", "tools/list")
        counts = [
            (await inspect(running.url, bearer, *options, *call))["structuredContent"]["count"]
            for bearer, options in (
                (token, ()),  # a new session for each process
                (token, ()),
                (token, ("--protocol-era", "modern")),  # the session of the token
                (token, ("--protocol-era", "modern")),
                (other, ("--protocol-era", "modern")),
            )
        ]

    assert {"add", "who"} <= {tool["name"] for tool in listed["tools"]}
    assert counts == [1, 1, 1, 2, 1]
