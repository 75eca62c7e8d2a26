"""One set of rules in the settings decides about every call: of an application, a model, its sub-agent, an adapter, an MCP client."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.adapters import langchain_tools
from holdfast.agent.agent import TurnContext
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.session.session import Session
from holdfast.settings import Settings
from holdfast.testing.scripted_model import Call, ScriptedModel, answer
from tests.gateway.running import Client, running_gateway
from tests.host.test_team import Scripted

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-04")]

RULES = {
    "none": {},
    "deny": {"HOLDFAST_PERMISSION_DENY": "files.read"},
    "ask": {"HOLDFAST_PERMISSION_ASK": "files"},
}
ARGUMENTS: JsonObject = {"path": "notes.md"}
FILES = {"HOLDFAST_GATEWAY_BUILTIN": "files", "HOLDFAST_GATEWAY_TOOL_NAMES": "qualified"}
WORDS = "water the tomatoes"

Caller = Callable[[Path, dict[str, str]], Awaitable[str]]


def load_settings(folder: Path, rules: dict[str, str]) -> Settings:
    own = {
        "HOLDFAST_DATA_DIR": str(folder / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(folder / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(folder / "host.json"),
    }
    return settings.load(environ={**own, **rules})


async def open_in(host: Host, folder: Path) -> Session:
    options = OpenOptions(cwd=folder / "project", extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
    session = await host.open(options)
    await session.wait_ready()
    return session


async def call_from_python(folder: Path, rules: dict[str, str]) -> str:
    async with Host(settings=load_settings(folder, rules)) as host:
        session = await open_in(host, folder)
        return (await session.call("files.read", ARGUMENTS)).text


async def call_with_an_adapter(folder: Path, rules: dict[str, str]) -> str:
    async with Host(settings=load_settings(folder, rules)) as host:
        tools = await langchain_tools(await open_in(host, folder))
        (read,) = [tool for tool in tools if tool.name.endswith("read")]
        called = {"type": "tool_call", "id": "1", "name": read.name, "args": ARGUMENTS}
        return str((await read.ainvoke(called)).content)


async def call_by_a_model(folder: Path, rules: dict[str, str]) -> str:
    script = [answer(Call("files__read", ARGUMENTS)), answer("Done.")]
    async with ScriptedModel(script) as endpoint:
        loaded = load_settings(folder, rules)
        model = replace(loaded.model, name="openai-chat:gpt-5", base_url=endpoint.base_url)
        async with Host(settings=replace(loaded, model=model)) as host:
            session = await open_in(host, folder)
            await session.prompt("Read the notes.")
        return "".join(endpoint.requests[1].tool_results.values())


async def call_by_a_sub_agent(folder: Path, rules: dict[str, str]) -> str:
    results: list[str] = []

    async def run(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            results.append((await turn.call("files.read", ARGUMENTS)).text)
            await turn.reply("Done.")
        else:
            await turn.call("agents.delegate", {"task": "Read the notes."})

    async with Host(settings=load_settings(folder, rules), agent=Scripted(run)) as host:
        session = await open_in(host, folder)
        await session.prompt("Go.")
    return "".join(results)


async def call_by_an_mcp_client(folder: Path, rules: dict[str, str]) -> str:
    async with (
        running_gateway(folder, {**rules, **FILES}, servers={}) as gateway,
        Client(gateway.url, gateway.token(mode=Mode.AUTO)) as client,
    ):
        return json.dumps(await client.call("files__read", **ARGUMENTS))


CALLERS: list[Caller] = [
    call_from_python,
    call_with_an_adapter,
    call_by_a_model,
    call_by_a_sub_agent,
    call_by_an_mcp_client,
]


@pytest.mark.slow
@pytest.mark.parametrize("rules", [*RULES])
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
async def test_the_rules_decide_in_the_mode_auto(tmp_path: Path, caller: Caller, rules: str):
    """The control has no rule: then the same call reads the file."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.md").write_text(WORDS)

    result = await caller(tmp_path, RULES[rules])

    assert (WORDS in result, "NOT_PERMITTED" in result) == (rules == "none", rules != "none"), result


@pytest.mark.parametrize("cap", ["auto", "read-only"])
async def test_the_settings_cap_the_mode_of_an_mcp_client(tmp_path: Path, cap: str):
    (tmp_path / "project").mkdir()
    capped = {"HOLDFAST_PERMISSION_MAX_MODE_GATEWAY": cap}
    async with (
        running_gateway(tmp_path, {**capped, **FILES}, servers={}) as gateway,
        Client(gateway.url, gateway.token(mode=Mode.AUTO)) as client,
    ):
        result = json.dumps(await client.call("files__write", path="new.md", text=WORDS))

    assert ((tmp_path / "project" / "new.md").exists(), "NOT_PERMITTED" in result) == (
        cap == "auto",
        cap != "auto",
    ), result
