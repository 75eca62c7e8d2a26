"""Third-party servers, which know nothing of Holdfast, work unchanged."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.model.json import JsonObject
from tests.connect.conftest import HostFactory
from tests.connect.web import ERAS, connect_options, open_session, sdk_program

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
NODE = ROOT / "peers" / "node_modules" / ".bin"
OTTER = {"name": "otter", "entityType": "animal", "observations": ["holds fast to kelp"]}


def memory(folder: Path) -> dict[str, Any]:
    return {
        "command": str(NODE / "mcp-server-memory"),
        "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
    }


@pytest.mark.promise("LNK-01")
@pytest.mark.promise("CTX-07")
async def test_memory_server_keeps_its_state_for_the_session(make_host: HostFactory, tmp_path: Path):
    async with make_host({"memory": memory(tmp_path)}) as host, host.session(cwd=tmp_path) as session:
        await session.call("memory.create_entities", {"entities": [OTTER]})
        graph = await session.call("memory.read_graph")

    assert json.loads(graph.text) == {"entities": [OTTER], "relations": []}


@pytest.mark.slow
@pytest.mark.promise("LNK-17")
@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_again_after_a_list_changed_notification(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with open_session(
        make_host, tmp_path, {"sdk": sdk_program()}, connect_options(ERAS[era])
    ) as session:
        await session.call("sdk.grow")
        async with asyncio.timeout(10):
            while not session.awaiting_approval.get("sdk"):
                await asyncio.sleep(0.01)

        assert [tool.name for tool in session.awaiting_approval["sdk"]] == ["grown"]


@pytest.mark.promise("LNK-02")
@pytest.mark.promise("CTX-07")
async def test_sub_agents_share_the_server_of_their_session(make_host: HostFactory, tmp_path: Path):
    async def sub_agent(host: Host, animal: str) -> None:
        async with host.run():
            entity: JsonObject = {"name": animal, "entityType": "animal", "observations": []}
            await host.call("memory.create_entities", {"entities": [entity]})

    async with make_host({"memory": memory(tmp_path)}) as host, host.session(cwd=tmp_path) as session:
        for animal in ("otter", "limpet"):  # one after another: the server loses one of two concurrent writes
            await asyncio.create_task(sub_agent(host, animal))
        graph = json.loads((await session.call("memory.read_graph")).text)

    assert [entity["name"] for entity in graph["entities"]] == ["otter", "limpet"]


@pytest.mark.slow
@pytest.mark.promise("CTX-07")
@pytest.mark.promise("LNK-14")
@pytest.mark.parametrize("script", ["sdk_server.py", "fastmcp_server.py"])
async def test_servers_built_on_other_libraries_work_unchanged(
    make_host: HostFactory, tmp_path: Path, script: str
):
    entry = {"command": sys.executable, "args": [str(ROOT / "tests" / "peers" / script)]}
    async with make_host({"s": entry}) as host, host.session(cwd=tmp_path) as session:
        assert session.refusals == ()
        answers = [await session.call("s.echo", {"text": text}) for text in ("one", "two")]

    assert [(answer.ok, answer.text) for answer in answers] == [(True, "one"), (True, "two")]


@pytest.mark.promise("CTX-07")
async def test_everything_server_reports_progress(make_host: HostFactory, tmp_path: Path):
    steps: list[float] = []
    async with (
        make_host({"all": {"command": str(NODE / "mcp-server-everything")}}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        names = {tool.definition.name for tool in await session.tools()}
        await session.call(
            "all.trigger-long-running-operation",
            {"duration": 0.03, "steps": 3},
            on_progress=lambda report: steps.append(report["progress"]),
        )

    assert (steps, {"echo", "get-sum"} <= names) == ([1, 2, 3], True)
