"""Attack 51: the definition of an agent asks for more than the session that starts it has, or for a model that is not configured."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Host
from holdfast.agent.agent import TurnContext
from holdfast.events import Replied
from holdfast.host.open_options import OpenOptions
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.testing.scripted_model import ScriptedModel, answer
from tests.agent.model.sessions import model_settings
from tests.builtin.test_shell import Person
from tests.host.test_team import Scripted, open_host, open_in

pytestmark = pytest.mark.anyio

NARROW = {
    "tools": "tools: [files.read, files.list, agents.delegate, team.create_session]",
    "mode ask": "mode: ask",
    "mode read-only": "mode: read-only",
    "control": "",
}


class Cautious(Person):
    """A user who lets agents create sessions, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Decision.REJECT)

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        await super().request_permission(question)
        return Decision.ALLOW_ONCE if "create_session" in question.title else Decision.REJECT


def define(folder: Path, name: str, head: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\n{head}\n---\nWork.\n")


@pytest.mark.promise("TEAM-08", "AGT-13")
@pytest.mark.parametrize("way", ["delegate", "isolated", "create_session"])
@pytest.mark.parametrize("parent", NARROW)
async def test_a_wide_definition_gets_no_more_than_its_parent_has(tmp_path: Path, parent: str, way: str):
    define(tmp_path / "home" / "agents", "narrow", NARROW[parent] or "mode: auto")
    define(tmp_path / "home" / "agents", "wide", "servers: all\ntools: all\nmode: auto")
    seen: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def act(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent or turn.sender:
            outside = str(tmp_path / "shed" / "flower.txt")
            written = await turn.call("files.write", {"path": "weed.txt", "text": "weed"})
            beyond = await turn.call("files.write", {"path": outside, "text": "weed"})
            seen.set_result({"written": written.ok, "beyond": beyond.ok, "context": turn.context})
        elif way == "create_session":
            created = {"title": "child", "agent": "wide", "initial_message": "Write."}
            if not (await turn.call("team.create_session", created)).ok:
                seen.set_result({"written": False, "beyond": False, "context": turn.context})
        else:
            task = {"task": "Write.", "agent": "wide", "isolated": way == "isolated"}
            assert (await turn.call("agents.delegate", task)).ok

    async with open_host(tmp_path, Scripted(act)) as host, asyncio.timeout(60):
        session = await open_in(host, tmp_path / "garden", agent_name="narrow", door=Cautious())
        await session.prompt("Go")
        found = await seen

    is_control = parent == "control"
    assert (found["written"], found["beyond"]) == (is_control, False)
    assert (tmp_path / "garden" / "weed.txt").exists() is is_control
    assert not (tmp_path / "shed" / "flower.txt").exists()
    context = found["context"]
    assert (context.roots, context.trust_level, context.workspace_id) == (
        session.context.roots,
        session.context.trust_level,
        session.context.workspace_id,
    )


@pytest.mark.promise("AGT-13")
@pytest.mark.parametrize("is_configured", [False, True], ids=["attack", "control: the user configured it"])
async def test_a_definition_cannot_choose_a_model_that_the_user_did_not_configure(
    tmp_path: Path, *, is_configured: bool
):
    folder, other = tmp_path / "project", "openai-chat:expensive"
    define(folder / ".holdfast" / "agents", "costly", f"model: {other}")
    async with ScriptedModel(lambda request: answer(request.model)) as endpoint:
        loaded = model_settings(tmp_path, endpoint, more={"also": (other,) if is_configured else ()})
        async with Host(settings=replace(loaded, file=tmp_path / "config" / "config.toml")) as host:
            session = await host.open(OpenOptions(cwd=folder, extra_builtins=frozenset({"agents"})))
            await session.wait_ready()
            definition = await host.agent_definitions.find("costly", str(folder))
            assert definition is not None
            await host.agent_definitions.approve(definition, by="ada")
            delegated = await session.call("agents.delegate", {"task": "Spend.", "agent": "costly"})
            refused = ""
            try:
                opened = await host.open(OpenOptions(cwd=folder, agent_name="costly"))
                await opened.prompt("Spend.")
                events = [stored.event async for stored in host.store.events(opened.context.session_id)]
            except HoldfastError as error:
                refused, events = error.message, []

    replies = "".join(event.text for event in events if isinstance(event, Replied))
    assert (delegated.ok, replies) == ((True, "expensive") if is_configured else (False, ""))
    assert ("add it to model.also" in refused) is not is_configured


@pytest.mark.promise("AGT-13")
@pytest.mark.parametrize("before", ["", "\ufeff", "\n", "\ufeff\r\n"], ids=["plain", "mark", "line", "both"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
async def test_the_limits_of_a_definition_hold_however_its_file_begins_and_ends_its_lines(
    tmp_path: Path, before: str, line_end: str
):
    text = "---\ndescription: Lists\nmode: read-only\ntools:\n  - files.list\n---\nList.\nThen stop.\n"
    file = tmp_path / "home" / "agents" / "lister.md"
    file.parent.mkdir(parents=True)
    file.write_bytes((before + text.replace("\n", line_end)).encode())
    async with open_host(tmp_path) as host:
        limited = await open_in(host, tmp_path / "garden", agent_name="lister")
        control = await open_in(host, tmp_path / "garden")

        assert [tool.name for tool in limited.available_tools] == ["files.list"]
        assert limited.permission.mode is Mode.READ_ONLY
        assert limited.definition is not None
        assert limited.definition.instructions == "List.\nThen stop."
        assert (len(control.available_tools) > 5, control.permission.mode) == (True, Mode.AUTO)
