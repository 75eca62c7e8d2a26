"""Adapters give a session's tools to other libraries, with the session's permission and context."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, HoldfastError, JsonObject, TurnContext, events
from holdfast.adapters import client_session, langchain_tools, openai_agents_tools, pydantic_ai_toolset
from holdfast.testing import FakeError, FakeServer, assert_called, host_of
from tests.host.box_servers import make_box

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.promise("API-08")
async def test_calls_through_an_adapter_have_the_sessions_permission_context_and_record():
    fake = FakeServer({"read": "ok", "fail": FakeError("no")})
    fake.add("write", 1)
    async with (
        host_of(make_box(), fake=fake) as host,
        host.session(user_id="ann", ask=lambda question: question.call.tool != "write") as session,
    ):
        tools = {tool.name: tool for tool in await langchain_tools(session)}
        call: dict[str, Any] = {"args": {}, "id": "1", "type": "tool_call"}
        read = await tools["fake__read"].ainvoke({"name": "fake__read", **call})
        refused = await tools["fake__write"].ainvoke({"name": "fake__write", **call})
        failed = await tools["fake__fail"].ainvoke({"name": "fake__fail", **call})
        picture = await tools["shop__picture"].ainvoke({"name": "shop__picture", **call})
        mcp = client_session(session, "fake")
        by_sdk = await mcp.call_tool("read")
        agents = {tool.name: tool for tool in await openai_agents_tools(session, tools=["fake.*"])}
        no_context: Any = None
        by_agents = {
            name: await agents[f"fake__{name}"].on_invoke_tool(no_context, "{}")
            for name in ("read", "fail", "write")
        }
        toolset = pydantic_ai_toolset(session)
        by_toolset = {
            name: (await toolset.call_tool(f"fake__{name}", {}, no_context, no_context)).return_value
            for name in ("read", "fail", "write")
        }
        refused_by_sdk = await mcp.call_tool("write")

        assert (read.content, read.status, read.artifact.ok) == ("ok", "success", True)
        assert (refused.status, "NOT_PERMITTED" in refused.content) == ("error", True)
        assert (failed.status, failed.content) == ("error", "no")
        assert picture.content[-1]["type"] == "image"
        assert (by_sdk.is_error, by_sdk.content[0].type) == (False, "text")
        assert [tool.name for tool in (await mcp.list_tools()).tools] == ["read", "fail", "write"]
        assert set(agents) == {"fake__read", "fake__fail", "fake__write"}
        for said in (by_agents, by_toolset):
            assert (said["read"], said["fail"], said["write"].startswith("NOT_PERMITTED: ")) == (
                "ok",
                "no",
                True,
            )
        assert (refused_by_sdk.is_error, "NOT_PERMITTED" in refused_by_sdk.content[0].text) == (True, True)  # type: ignore[union-attr]
        assert {seen.session.user_id for seen in fake.calls} == {"ann"}
        assert fake.calls_to("write") == []
        await assert_called(session, "fake.read", times=4)
        with pytest.raises(HoldfastError, match="`tools` must be a list"):
            pydantic_ai_toolset(session, tools="fake.*")


class WithAdapters(Agent):
    """Answers with what the tools return through each adapter."""

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> events.StopReason:
        no_context: Any = None
        patterns = ["fake.read", "fake.rite"]
        (by_langchain,) = await langchain_tools(turn, tools=patterns)
        (by_agents,) = await openai_agents_tools(turn, tools=patterns)
        toolset = pydantic_ai_toolset(turn, tools=patterns)
        said = [
            await by_langchain.ainvoke({}),
            await by_agents.on_invoke_tool(no_context, "{}"),
            (await toolset.call_tool("fake__read", {}, no_context, no_context)).return_value,
            *await toolset.get_tools(no_context),
        ]
        await turn.reply(" ".join(said))
        return events.StopReason.END_TURN


@pytest.mark.slow
async def test_an_agent_gives_its_turn_to_an_adapter(caplog: pytest.LogCaptureFixture):
    fake = FakeServer({"read": "ok"})
    async with host_of(fake, agent=WithAdapters()) as host, host.session(user_id="ann") as session:
        result = (await session.prompt("go")).raise_for_error()
        await assert_called(session, "fake.read", times=3)

    kinds = [type(stored.event) async for stored in session.subscribe()]
    assert result.text == "ok ok ok fake__read"
    assert kinds.index(events.Prompted) < kinds.index(events.ToolCalled) < kinds.index(events.TurnEnded)
    warned = [record.getMessage() for record in caplog.records if "no tool matches" in record.getMessage()]
    assert warned == ["no tool matches fake.rite in `tools`. Did you mean 'fake.read'?"] * 3


def test_importing_the_adapters_imports_none_of_the_libraries(tmp_path: Path):
    program = "import sys, holdfast.adapters; print(sorted({'agents', 'langchain_core', 'pydantic_ai', 'mcp'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert done.stdout == "[]\n"
