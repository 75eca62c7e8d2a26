"""OpenCode, an agent program, unmodified: its model (played by a script) calls a tool through the gateway.

`HOLDFAST_OPENCODE=/path/to/opencode` runs this test (`npm install opencode-ai`).
"""

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast.testing.scripted_model import Answer, Call, ModelRequest, ScriptedModel, answer
from tests.gateway.running import running_gateway

pytestmark = pytest.mark.anyio

OPENCODE = os.environ.get("HOLDFAST_OPENCODE", "")


@pytest.mark.skipif(not OPENCODE, reason="HOLDFAST_OPENCODE does not name the program")
@pytest.mark.timeout(180)
async def test_an_agent_program_uses_the_gateway(tmp_path: Path):
    def script(request: ModelRequest) -> Answer:
        if request.tools and not request.tool_results:
            return answer(Call("holdfast_add", {}))
        return answer("Done.")

    home = tmp_path / "home"
    home.mkdir()
    async with running_gateway(tmp_path) as running, ScriptedModel(script) as endpoint:
        token = running.token("opencode")
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": endpoint.base_url, "apiKey": "none"},
            "models": {"model": {"name": "model"}},
        }
        entry = {"type": "remote", "url": running.url, "headers": {"Authorization": f"Bearer {token}"}}
        config = home / "opencode.json"
        config.write_text(
            json.dumps(
                {
                    "autoupdate": False,
                    "share": "disabled",
                    "provider": {"scripted": provider},
                    "model": "scripted/model",
                    "small_model": "scripted/model",
                    "mcp": {"holdfast": entry},
                }
            )
        )
        process = await asyncio.create_subprocess_exec(
            OPENCODE,
            "run",
            "Count.",
            "--model",
            "scripted/model",
            cwd=home,
            env={**os.environ, "HOME": str(home), "PWD": str(home), "OPENCODE_CONFIG": str(config)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        rows = await running.host.store.read(lambda tx: [json.loads(row.body) for row in tx.audit_rows()])

    assert b"Done." in output
    assert [(row["kind"], row["tool"], row["outcome"]) for row in rows] == [("call", "add", "completed")]
