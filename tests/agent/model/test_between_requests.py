"""What changes while a turn runs is in the next request to its model: messages of other sessions, and servers that started late."""

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast import Host
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.open_options import OpenOptions
from holdfast.host.server_config import parse_servers
from holdfast.model.event import MessageReceived
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.testing.scripted_model import Call, ModelRequest, ScriptedModel, Step, answer
from tests.agent.model.sessions import model_settings, text
from tests.agent.model.test_agents import opened

pytestmark = pytest.mark.anyio

LATE = """
import sys, time
from pathlib import Path
from holdfast.toolkit import Toolbox

while not Path(sys.argv[-1]).exists():
    time.sleep(0.01)
sys.argv.pop()
box = Toolbox("late")

@box.tool()
def add() -> str:
    "Add."
    return "added"

box.main()
"""


@pytest.mark.promise("TEAM-09")
async def test_a_message_to_a_busy_session_is_in_its_next_request(tmp_path: Path):
    requests: list[ModelRequest] = []

    async def respond(request: ModelRequest) -> Step:
        requests.append(request)
        if len(requests) > 1:
            return answer("Done.")
        sent = await other.call("team.send_message", {"session_id": target, "text": "The gate is open."})
        assert sent.ok
        return answer(Call("files__list", {"path": "."}))

    async with opened(tmp_path, respond) as (host, session):
        other = await host.open(
            OpenOptions(cwd=tmp_path / "project", extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
        )
        await other.wait_ready()
        target = session.context.session_id
        await session.prompt("Look")
        events = [stored.event async for stored in host.store.events(target)]
        count = len(requests)

    assert count == 2, "it started no turn of its own"
    assert "| The gate is open." in str(requests[1].messages)
    assert "The gate is open." not in str(requests[0].messages)
    (received,) = (event for event in events if isinstance(event, MessageReceived))
    assert received.text == "The gate is open."


async def test_a_server_that_starts_during_a_turn_is_in_the_next_request(tmp_path: Path):
    (tmp_path / "late.py").write_text(LATE)
    started = tmp_path / "started"
    entry = {"command": sys.executable, "args": [str(tmp_path / "late.py"), str(started)]}
    requests: list[ModelRequest] = []

    async def respond(request: ModelRequest) -> Step:
        requests.append(request)
        if request.tool_results:
            return answer("Done.")
        started.touch()
        await session.wait_ready()
        return answer(Call("files__list", {"path": "."}))

    async with (
        ScriptedModel(respond) as endpoint,
        Host(settings=model_settings(tmp_path, endpoint)) as host,
        asyncio.timeout(60),
    ):
        session = await host.open(
            OpenOptions(cwd=tmp_path, mode=Mode.AUTO, servers=parse_servers({"late": entry}))
        )
        while "files" not in session.available:
            await asyncio.sleep(0.01)
        await session.prompt(text("Look"))
        await session.close()

    assert ["late__add" in request.tools for request in requests] == [False, True]


async def test_a_session_uses_the_model_of_its_workspace(tmp_path: Path):
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
    async with ScriptedModel(lambda request: answer("Hello.")) as endpoint:
        loaded = model_settings(tmp_path, endpoint, more={"name": "openai-chat:first"})
        async with Host(settings=loaded) as host:
            host.registry.add(tmp_path / "project", trust=Trust.DIRECT, model="openai-chat:second")
            for folder, model in (("project", ""), ("elsewhere", ""), ("project", "openai-chat:third")):
                async with host.session(cwd=tmp_path / folder, model=model) as session:
                    await session.prompt("Which?")

    assert [request.model for request in endpoint.requests] == ["second", "first", "third"]
