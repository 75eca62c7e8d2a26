"""Third-party ACP clients talk to a session with a model."""

import asyncio
import json
import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.scripted_model import Call, Fail, ModelRequest, ScriptedModel, Step, Think, answer
from tests.agent.model.sessions import PREFIXES
from tests.journeys.editor import HOLDFAST, environment
from tests.peers.spawn import PACKAGES

pytestmark = pytest.mark.anyio


def respond(request: ModelRequest) -> Step:
    if request.prompt == "Fail.":
        return Fail(status=401)
    if request.tool_results:
        return answer("The folder has note.txt.")
    return answer(Think("I look."), "Looking.", Call("files__list", {"path": "."}))


def model_environment(home: Path, endpoint: ScriptedModel, prefix: str = "openai-chat") -> dict[str, str]:
    model = {
        "HOLDFAST_MODEL_NAME": f"{prefix}:scripted",
        "HOLDFAST_MODEL_ALSO": f"{prefix}:other",
        "HOLDFAST_MODEL_BASE_URL": endpoint.base_url,
    }
    return environment(home, {"HOME": str(home), **model})


@pytest.mark.slow
@pytest.mark.promise("AGT-01")
@pytest.mark.promise("AGT-06")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_acpx_shows_the_answer_of_a_model_and_why_there_is_none(tmp_path: Path, prefix: str):
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "note.txt").write_text("hi")
    command = [str(PACKAGES / ".bin" / "node"), str(PACKAGES / ".bin" / "acpx"), "--agent"]
    command += [shlex.join(HOLDFAST), "--cwd", str(cwd), "--ttl", "1", "--approve-all", "exec"]
    ended: list[subprocess.CompletedProcess[str]] = []
    async with ScriptedModel(respond) as endpoint:
        for prompt in ("What is here?", "Fail."):
            ended.append(
                await asyncio.to_thread(
                    subprocess.run,
                    [*command, prompt],
                    env=model_environment(tmp_path, endpoint, prefix),
                    capture_output=True,
                    text=True,
                    timeout=50,
                )
            )

    assert [run.returncode for run in ended] == [0, 0], ended
    assert "The folder has note.txt." in ended[0].stdout
    assert "127.0.0.1 needs a key (HTTP 401)." in ended[1].stdout
    assert [request.prompt for request in endpoint.requests] == [*["What is here?"] * 2, "Fail."]


@pytest.mark.promise("AGT-11")
@pytest.mark.promise("AGT-06")
@pytest.mark.parametrize(
    "prefix", ["openai-chat", *(pytest.param(prefix, marks=pytest.mark.slow) for prefix in PREFIXES[1:])]
)
async def test_the_python_sdk_s_editor_gets_thoughts_text_and_calls_and_can_choose_a_model(
    tmp_path: Path, prefix: str
):
    acp: Any = import_module("acp")
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "note.txt").write_text("hi")
    seen: list[str] = []
    texts: list[str] = []

    class Editor:
        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            seen.append(update.session_update)
            if update.session_update == "agent_message_chunk":
                texts.append(update.content.text)

    async with (
        ScriptedModel(respond) as endpoint,
        acp.spawn_agent_process(
            Editor(),
            *(*HOLDFAST, "--model", f"{prefix}:third"),
            env=model_environment(tmp_path, endpoint, prefix),
            use_unstable_protocol=True,
        ) as (agent, _),
    ):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        opened = await agent.new_session(cwd=str(cwd), mcp_servers=[])
        options = json.loads(opened.model_dump_json(by_alias=True))["configOptions"]
        session = opened.session_id
        failed = await agent.prompt(session_id=session, prompt=[acp.text_block("Fail.")])
        told, seen, texts = "".join(texts), [], []
        await agent.set_config_option(session_id=session, config_id="model", value=f"{prefix}:other")
        stopped = await agent.prompt(session_id=session, prompt=[acp.text_block("What is here?")])

    model = next(option for option in options if option["id"] == "model")
    assert (model["category"], model["currentValue"]) == ("model", f"{prefix}:third")
    assert told.startswith("127.0.0.1 needs a key (HTTP 401).")
    assert [failed.stop_reason, stopped.stop_reason] == ["end_turn", "end_turn"]
    assert [request.model for request in endpoint.requests] == ["third", "other", "other"]
    order = [name for name in dict.fromkeys(seen) if name.startswith(("agent_", "tool_"))]
    assert order == ["agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update"]


@pytest.mark.slow
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
