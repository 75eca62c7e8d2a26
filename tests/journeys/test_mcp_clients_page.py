"""docs/mcp-clients.md is correct: its commands run, its blocks parse, its example serves a client."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.settings import SETTINGS
from tests.gateway.running import Client
from tests.journeys.up import environment, run, running_up

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "mcp-clients.md").read_text(encoding="utf-8")
EXAMPLE = """
import asyncio, os, sys
import httpx
{code}

async def main():
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for headers in ({{}}, {{"Authorization": f"Bearer {{sys.argv[1]}}"}}):
                params = {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "clientInfo": {{"name": "t", "version": "1"}}}}
                request = {{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}}
                print((await http.post("/agents/mcp", json=request, headers=headers)).status_code)

asyncio.run(main())
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line[2:])[1:] for block in blocks("console") for line in block.splitlines()]


def test_every_command_of_the_page_works(home: Path):
    done = [run(home, *words) for words in commands() if words[0] == "tokens" or "--print-config" in words]

    assert [len(command.stdout) > 0 for command in done] == [True] * 5


async def test_the_gateway_starts_with_the_options_of_the_page(home: Path, cwd: Path):
    (words,) = [words for words in commands() if "--public-url" in words and "--print-config" not in words]
    async with running_up(home, cwd, *words[1:]) as up:
        token = run(home, "tokens", "create", "test").stdout.strip()
        headers = {"Host": "mcp.example.org"}
        async with Client(up.url, token, headers) as client:
            allowed = await client.post("tools/list")
            refused = await client.post("tools/list", headers={"Host": "other.example.org"})

    assert (allowed.status_code, refused.status_code) == (200, 403)


def test_the_example_serves_clients_with_a_token(home: Path):
    (code,) = blocks("python")
    token = run(home, "tokens", "create", "test").stdout.strip()

    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE.format(code=code), token],
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        check=True,
    )

    assert done.stdout.split() == ["401", "200"]


def test_the_blocks_and_settings_of_the_page_exist():
    entry: Any = json.loads(blocks("json")[0])
    toml = tomllib.loads(blocks("toml")[0])
    known = {setting.key for setting in SETTINGS}
    named = set(re.findall(r"`(gateway\.[a-z_]+)`", PAGE)) | {f"gateway.{key}" for key in toml["gateway"]}

    assert entry["mcpServers"]["holdfast"]["args"] == ["mcp"]
    assert named - known == set()
    assert httpx.URL(toml["gateway"]["audience"]).path == "/mcp"
