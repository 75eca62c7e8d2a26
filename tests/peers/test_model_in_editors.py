"""Third-party ACP clients talk to a session with a model."""

import asyncio
import json
import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.scripted_model import Call, ModelRequest, ScriptedModel, Step, Think, answer
from tests.journeys.editor import HOLDFAST, environment
from tests.peers.spawn import PACKAGES

pytestmark = pytest.mark.anyio


def respond(request: ModelRequest) -> Step:
    if request.tool_results:
        return answer("The folder has note.txt.")
    return answer(Think("I look."), "Looking.", Call("files__list", {"path": "."}))


def model_environment(home: Path, endpoint: ScriptedModel) -> dict[str, str]:
    model = {
        "HOLDFAST_MODEL_NAME": "openai-chat:scripted",
        "HOLDFAST_MODEL_ALSO": "openai-chat:other",
        "HOLDFAST_MODEL_BASE_URL": endpoint.base_url,
    }
    return environment(home, {"HOME": str(home), **model})


@pytest.mark.matrix
@pytest.mark.promise("AGT-01")
async def test_acpx_shows_the_answer_of_a_model(tmp_path: Path):
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "note.txt").write_text("hi")
    async with ScriptedModel(respond) as endpoint:
        command = [str(PACKAGES / ".bin" / "node"), str(PACKAGES / ".bin" / "acpx"), "--agent"]
        command += [
            shlex.join(HOLDFAST),
            "--cwd",
            str(cwd),
            "--ttl",
            "1",
            "--approve-all",
            "exec",
            "What is here?",
        ]
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            env=model_environment(tmp_path, endpoint),
            capture_output=True,
            text=True,
            timeout=50,
        )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "The folder has note.txt." in ended.stdout
    assert [request.prompt for request in endpoint.requests] == ["What is here?"] * 2


@pytest.mark.promise("AGT-11")
async def test_the_python_sdk_s_editor_gets_thoughts_text_and_calls_and_can_choose_a_model(tmp_path: Path):
    acp: Any = import_module("acp")
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "note.txt").write_text("hi")
    seen: list[str] = []

    class Editor:
        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            seen.append(update.session_update)

    async with (
        ScriptedModel(respond) as endpoint,
        acp.spawn_agent_process(
            Editor(), *HOLDFAST, env=model_environment(tmp_path, endpoint), use_unstable_protocol=True
        ) as (agent, _),
    ):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        opened = await agent.new_session(cwd=str(cwd), mcp_servers=[])
        options = json.loads(opened.model_dump_json(by_alias=True))["configOptions"]
        session = opened.session_id
        await agent.set_config_option(session_id=session, config_id="model", value="openai-chat:other")
        stopped = await agent.prompt(session_id=session, prompt=[acp.text_block("What is here?")])

    model = next(option for option in options if option["id"] == "model")
    assert (model["category"], model["currentValue"]) == ("model", "openai-chat:scripted")
    assert stopped.stop_reason == "end_turn"
    assert [request.model for request in endpoint.requests] == ["other"] * 2
    order = [name for name in dict.fromkeys(seen) if name.startswith(("agent_", "tool_"))]
    assert order == ["agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update"]


@pytest.mark.matrix
@pytest.mark.promise("TEAM-06", "AGT-13")
async def test_the_python_sdk_s_editor_chooses_an_agent_and_sees_its_sub_agent_in_the_call(tmp_path: Path):
    acp: Any = import_module("acp")
    cwd = tmp_path / "project"
    cwd.mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reader.md").write_text(
        "---\ntools: [files.list, agents.*]\n---\nYou only read.\n"
    )
    shown: list[str] = []
    offered: list[set[str]] = []

    def delegate(request: ModelRequest) -> Step:
        body: Any = request.body
        offered.append({tool["function"]["name"] for tool in body["tools"]})
        if request.tool_results:
            return answer("It is done.")
        if "You are a sub-agent" in request.instructions:
            return answer("I am looking around.\n", Call("files__list", {"path": "."}))
        return answer(Call("agents__delegate", {"task": "Look around."}))

    class Editor:
        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            if update.session_update == "tool_call_update":
                shown.append(update.model_dump_json())

    async with (
        ScriptedModel(delegate) as endpoint,
        acp.spawn_agent_process(
            Editor(),
            *HOLDFAST,
            env=model_environment(tmp_path, endpoint),
            use_unstable_protocol=True,
        ) as (agent, _),
    ):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        opened = await agent.new_session(cwd=str(cwd), mcp_servers=[])
        session = opened.session_id
        changed = await agent.set_config_option(session_id=session, config_id="agent", value="reader")
        stopped = await agent.prompt(session_id=session, prompt=[acp.text_block("Look")])

    options = json.loads(changed.model_dump_json(by_alias=True))["configOptions"]
    chosen = next(option for option in options if option["id"] == "agent")
    assert (chosen["currentValue"], stopped.stop_reason) == ("reader", "end_turn")
    assert offered[0] == {"files__list", "agents__delegate"}
    assert all(tools <= offered[0] for tools in offered), "its sub-agent has no more"
    assert any("I am looking around." in text for text in shown)
