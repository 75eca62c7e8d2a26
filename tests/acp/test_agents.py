"""Agents in an editor: the option that chooses one, and sub-agents as sessions of their own."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from holdfast.acp.messages import ClientCapabilities
from holdfast.agent.agent import TurnContext
from holdfast.host.host import Host
from holdfast.model.json import JsonObject
from holdfast.wire.messages import PeerError
from tests.acp.zed import Zed, connected
from tests.connect.conftest import HostFactory, make_host
from tests.host.test_team import Scripted
from tests.journeys import schema

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


def define(folder: Path, name: str, head: str) -> None:
    agents = folder / "config" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(f"---\ndescription: {name}s\n{head}\n---\nYou {name}.\n")


def option(options: Sequence[dict[str, Any]], name: str = "agent") -> dict[str, Any] | None:
    return next((one for one in options if one["id"] == name), None)


async def choose(zed: Zed, session: str, agent: str) -> Any:
    answer = await zed.request("session/set_config_option", sessionId=session, configId="agent", value=agent)
    return option(answer["configOptions"])


async def list_tools(zed: Zed, session: str) -> str:
    await zed.prompt(session, "/tools")
    return zed.shown("agent_message_chunk")[-1]


@pytest.mark.promise("AGT-13")
async def test_an_editor_chooses_an_agent_whose_limits_then_stay(make_host: HostFactory, tmp_path: Path):
    define(tmp_path, "read", "tools: [files.read, files.list]")
    define(tmp_path, "write", "servers: all")
    project = tmp_path / "project" / ".holdfast" / "agents"
    project.mkdir(parents=True)
    (project / "strange.md").write_text("---\ndescription: not approved\n---\nHello.\n")
    async with make_host({}) as host, connected(host) as zed:
        opened = await zed.request("session/new", cwd=str(tmp_path / "project"), mcpServers=[])
        session, offered = opened["sessionId"], option(opened["configOptions"])
        before = await list_tools(zed, session)
        chosen = await choose(zed, session, "read")
        as_reader = await list_tools(zed, session)
        again = await choose(zed, session, "write")
        as_writer = await list_tools(zed, session)
        refused: dict[str, str] = {}
        with pytest.raises(PeerError) as no_model:
            await zed.request("session/set_config_option", sessionId=session, configId="model", value="nope")
        rpc_codes = [no_model.value.rpc_code]
        for name in ("", "strange", "nothing"):
            with pytest.raises(PeerError) as error:
                await choose(zed, session, name)
            refused[name] = error.value.message
            rpc_codes.append(error.value.rpc_code)
        after = await list_tools(zed, session)

    schema.definition_validator("SessionConfigOption").validate(offered)
    assert offered is not None
    assert (offered["currentValue"], [one["value"] for one in offered["options"]]) == (
        "",
        ["", "read", "write"],
    )
    assert (chosen["currentValue"], again["currentValue"]) == ("read", "write")
    assert "files.write" in before
    assert as_reader == as_writer == after
    assert "files.write" not in as_reader
    assert rpc_codes == [-32602] * 4
    assert "never removed" in refused[""]
    assert "not approved" in refused["strange"] or "have not approved" in refused["strange"]
    assert "There is no agent 'nothing'" in refused["nothing"]
    assert refused["nothing"].endswith(" The agents here are: read, write."), "and none that is not approved"


async def test_without_definitions_the_option_is_left_out(make_host: HostFactory, tmp_path: Path):
    async with make_host({}) as host, connected(host) as zed:
        opened = await zed.request("session/new", cwd=str(tmp_path), mcpServers=[])

    assert option(opened["configOptions"]) is None


async def delegate(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
    if turn.origin.agent:
        await turn.reply("I look.")
        await turn.call("files.list", {})
        await turn.reply("I looked.")
    else:
        await turn.call("agents.delegate", {"task": "Look."})


@pytest.mark.promise("TEAM-06")
@pytest.mark.parametrize("declared", [True, False])
async def test_a_sub_agent_is_a_session_for_editors_that_declare_it(
    make_host: HostFactory, tmp_path: Path, *, declared: bool
):
    capabilities = ClientCapabilities(subagents={} if declared else None)
    host = make_host({})
    host = Host(settings=host.settings, agent=Scripted(delegate))
    async with host, connected(host, capabilities) as zed:
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await zed.request("session/set_mode", sessionId=session, modeId="auto")
        await zed.prompt(session, "Go.")

    children = zed.updates("subagent_update")
    texts = [params["update"] for params in zed.params if params["sessionId"] != session]
    if not declared:
        assert (children, texts) == ([], [])
        assert any("I looked." in str(update.get("content")) for update in zed.updates("tool_call_update"))
        return
    file = schema.FILE.with_name("schema.unstable.json")
    unstable = json.loads(file.read_text(encoding="utf-8"))
    validator: Any = Draft202012Validator({"$ref": "#/$defs/SessionNotification", "$defs": unstable["$defs"]})
    for params in zed.params:
        validator.validate(params)
    assert [update["state"]["state"] for update in children] == ["running", "idle"]
    assert {update["sessionId"] for update in children} == {
        params["sessionId"] for params in zed.params if params["sessionId"] != session
    }
    assert [update["sessionUpdate"] for update in texts] == [
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "agent_message_chunk",
    ]
    first = next(index for index, params in enumerate(zed.params) if params["sessionId"] != session)
    assert zed.params[first - 1]["update"]["sessionUpdate"] == "subagent_update", (
        "announced before its updates"
    )


async def delegate_twice(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
    is_nested = "Deeper." in str(blocks)
    if not is_nested:
        await turn.call("agents.delegate", {"task": "Deeper." if turn.origin.agent else "Look."})
    await turn.reply("I dug.\n" if is_nested else "I looked.\n")


@pytest.mark.promise("TEAM-06")
@pytest.mark.parametrize("declared", [True, False])
async def test_a_sub_agent_of_a_sub_agent_is_shown_and_ended_too(
    make_host: HostFactory, tmp_path: Path, *, declared: bool
):
    capabilities = ClientCapabilities(subagents={} if declared else None)
    settings = make_host({}).settings
    settings = replace(settings, agents=replace(settings.agents, max_depth=2))
    host = Host(settings=settings, agent=Scripted(delegate_twice))
    async with host, connected(host, capabilities) as zed:
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await zed.request("session/set_mode", sessionId=session, modeId="auto")
        await zed.prompt(session, "Go.")

    children = zed.updates("subagent_update")
    if declared:
        states = [(update["sessionId"], update["state"]["state"]) for update in children]
        outer, inner = dict.fromkeys(child for child, _ in states)
        assert states == [(outer, "running"), (inner, "running"), (inner, "idle"), (outer, "idle")]
        assert "I dug." in str([params for params in zed.params if params["sessionId"] == inner])
    else:
        texts = [str(update["content"]) for update in zed.updates("tool_call_update") if "content" in update]
        assert any("agents.delegate" in text and "I dug." in text for text in texts)
        assert {update["toolCallId"] for update in zed.updates("tool_call_update")} == {
            update["toolCallId"] for update in zed.updates("tool_call")
        }
