"""Sub-agents in their parent's session: one state, one budget, at most the parent's rights."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.agent import TurnContext
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.host.server_config import parse_servers
from holdfast.model.budget_limits import BudgetLimits
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Replied, StopReason, ToolCalled, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.session.budget import BudgetPool
from holdfast.session.session import Session
from tests.builtin.test_shell import Person
from tests.host.test_team import Scripted, open_host, open_in

pytestmark = pytest.mark.anyio

COUNTER = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "connect" / "counter_server.py")],
}


def text(blocks: Sequence[JsonObject]) -> str:
    return str(blocks[0].get("text", ""))


async def open_with(host: Host, folder: Path, servers: dict[str, Any] | None = None, **options: Any):
    opening = OpenOptions(
        cwd=folder,
        extra_builtins=AGENT_SERVERS,
        mode=Mode.AUTO,
        servers=parse_servers(servers or {}),
        **options,
    )
    session = await host.open(opening)
    await session.wait_ready()
    return session


@pytest.mark.promise("TEAM-06", "LNK-02")
@pytest.mark.parametrize("crash", [False, True])
async def test_a_gather_of_two_tools_and_a_sub_agent_shares_one_server(tmp_path: Path, *, crash: bool):
    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            await turn.reply("Counting.")
            result = await turn.call("counter.count", {})
            if crash:
                raise RuntimeError("the sub-agent crashed")
            await turn.reply(f"It counted: {result.text}")
            return
        results = await asyncio.gather(
            turn.call("counter.count", {}),
            turn.call("counter.count", {}),
            turn.call("agents.delegate", {"task": "Count once."}),
        )
        await turn.reply(results[2].text)

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_with(host, tmp_path / "garden", {"counter": COUNTER})
        await session.prompt([{"type": "text", "text": "Go."}])
        after = await session.call("counter.count", {})
        stored = [event async for event in host.store.events(session.context.session_id)]
        await session.close()

    calls = [event for event in stored if isinstance(event.event, ToolCalled)]
    delegated = next(event for event in calls if event.event.tool == "delegate")  # type: ignore[union-attr]
    of_sub_agent = [event for event in stored if event.agent]
    assert after.text.strip().endswith("4") or "4" in after.text, "one process, one state"
    assert {event.parent_call for event in of_sub_agent} == {delegated.event.call_id}  # type: ignore[union-attr]
    assert [type(event.event).__name__ for event in of_sub_agent][:3] == [
        "Replied",
        "ToolCalled",
        "ToolStarted",
    ]
    ended = next(
        event.event
        for event in stored
        if isinstance(event.event, ToolEnded) and event.event.call_id == delegated.event.call_id  # type: ignore[union-attr]
    )
    assert ("It counted" in str(ended.content)) is not crash


@pytest.mark.promise("TEAM-07")
async def test_depth_and_number_hold_and_the_tool_is_absent_at_the_limit(tmp_path: Path):
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()
    seen: dict[str, bool] = {}
    running, peak = 0, 0

    async def has_tool(turn: TurnContext) -> bool:
        return any(tool.name == "agents.delegate" for tool in await turn.tools())

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        nonlocal running, peak
        if turn.origin.agent:
            running += 1
            peak = max(peak, running)
            seen["in a sub-agent"] = await has_tool(turn)
            nested = await turn.call("agents.delegate", {"task": "More."})
            seen["nested call"] = nested.ok
            begun.release()
            await go_on.wait()
            running -= 1
            await turn.reply("done")
            return
        seen["before"] = await has_tool(turn)
        tasks = [asyncio.create_task(turn.call("agents.delegate", {"task": "Work."})) for _ in range(20)]
        for _ in range(4):
            await begun.acquire()
        seen["at the limit"] = await has_tool(turn)
        while sum(task.done() for task in tasks) < 16:
            await asyncio.sleep(0.01)
        go_on.set()
        results = await asyncio.gather(*tasks)
        seen["after"] = await has_tool(turn)
        await turn.reply(str(sum(result.ok for result in results)))

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_with(host, tmp_path / "garden")
        await session.prompt([{"type": "text", "text": "Go."}])
        replies = [
            stored.event.text
            async for stored in host.store.events(session.context.session_id)
            if isinstance(stored.event, Replied) and not stored.agent
        ]

    assert seen == {
        "before": True,
        "in a sub-agent": False,
        "nested call": False,
        "at the limit": False,
        "after": True,
    }
    assert peak == 4, "of 20 at once, 4 ran at a time"
    assert int(replies[0]) == 4, "the others were refused"


async def test_what_a_sub_agent_uses_counts_for_the_root():
    class Used:
        input_tokens, output_tokens, cost = 40, 20, 0.01

    pool = BudgetPool(BudgetLimits(tokens=100, calls=2))
    share = pool.start_sub_agent(BudgetLimits(tokens=50))
    share.start_request()
    share.add_usage(Used())
    with pytest.raises(HoldfastError, match="50 tokens is used up"):
        share.start_request()
    share.end()
    pool.start_call()
    pool.start_call()

    with pytest.raises(HoldfastError, match="2 calls is used up"):
        pool.start_call()
    with pytest.raises(HoldfastError, match="calls is used up"):
        pool.start_sub_agent(BudgetLimits())
    assert pool.sub_agents == 0


@pytest.mark.parametrize("reserved", [BudgetLimits(seconds=600), BudgetLimits(tokens=50)])
async def test_a_reservation_of_one_kind_does_not_lift_the_root_s_limits_of_the_others(
    reserved: BudgetLimits,
):
    share = BudgetPool(BudgetLimits(tokens=50, calls=2, seconds=600)).start_sub_agent(reserved)
    share.start_call()
    share.start_call()
    with pytest.raises(HoldfastError, match="2 calls is used up"):
        share.start_call()


async def test_a_delegated_task_runs_no_commands_of_the_user(tmp_path: Path):
    command = '/call files.write {"path": "a", "text": "b"}'
    async with open_host(tmp_path, SlashCommandAgent()) as host:
        session = await open_with(host, tmp_path / "garden")
        delegated = await session.call("agents.delegate", {"task": command})
        is_written = (tmp_path / "garden" / "a").exists()
        await session.prompt([{"type": "text", "text": command}])

    assert (is_written, (tmp_path / "garden" / "a").exists()) == (False, True)
    assert "only a model can answer another agent" in delegated.text


async def test_isolated_sub_agents_are_counted_before_their_sessions_are_opened(tmp_path: Path):
    go_on, ended, opened = asyncio.Event(), list[bool](), set[str]()

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            opened.add(turn.context.session_id)
            await go_on.wait()
            return

        async def delegate() -> None:
            result = await turn.call("agents.delegate", {"task": "Work.", "isolated": True})
            ended.append(result.ok)
            if len(ended) == 4:  # the delegations beyond the limit end first
                go_on.set()

        await asyncio.gather(*(delegate() for _ in range(8)))

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_with(host, tmp_path / "garden")
        async with asyncio.timeout(60):
            await session.prompt([{"type": "text", "text": "Go."}])

    assert ended == [False] * 4 + [True] * 4
    assert (len(opened), session.budget.sub_agents) == (4, 0)


@pytest.mark.promise("TEAM-08")
async def test_a_child_has_at_most_its_parent_s_tools_and_mode(tmp_path: Path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "agents").mkdir()
    (tmp_path / "home" / "agents" / "reader.md").write_text(
        "---\ndescription: Reads\ntools: [files.read, files.write, shell.run, stage.open]\nmode: read-only\n---\nRead only.\n"
    )
    seen: dict[str, Any] = {}

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            assert turn.definition is not None
            seen["instructions"] = turn.definition.instructions
            seen["tools"] = sorted(tool.name for tool in await turn.tools())
            seen["write"] = (await turn.call("files.write", {"path": "a", "text": "b"})).outcome
            seen["list"] = (await turn.call("files.list", {})).outcome
            return
        delegated = await turn.call(
            "agents.delegate", {"task": "Read.", "agent": "reader", "tools": ["files.*"]}
        )
        assert delegated.ok, delegated.text

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_with(host, tmp_path / "garden")
        await session.prompt([{"type": "text", "text": "Go."}])

    assert seen == {
        "instructions": "Read only.",
        "tools": ["files.read", "files.write"],
        "write": "refused",
        "list": "refused",
    }
    assert not (tmp_path / "garden" / "a").exists()


async def test_cancelling_the_turn_ends_its_sub_agents(tmp_path: Path):
    begun, ended = asyncio.Semaphore(0), list[str]()

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            begun.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(turn.origin.agent)
        await asyncio.gather(*(turn.call("agents.delegate", {"task": "Wait."}) for _ in range(3)))

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_with(host, tmp_path / "garden")
        prompting = asyncio.create_task(session.prompt([{"type": "text", "text": "Go."}]))
        for _ in range(3):
            await begun.acquire()
        session.cancel()
        result = await prompting
        async with asyncio.timeout(30):
            while len(ended) < 3:
                await asyncio.sleep(0.01)
        children = session.budget.sub_agents

    assert result.reason is StopReason.CANCELLED
    assert children == 0


@pytest.mark.promise("AGT-13")
async def test_a_project_s_definition_is_used_only_as_it_was_approved(tmp_path: Path):
    async with open_host(tmp_path) as host:
        folder = tmp_path / "garden"
        definition = folder / ".holdfast" / "agents" / "helper.md"
        definition.parent.mkdir(parents=True)
        definition.write_text("---\nservers: [files]\nmode: ask\n---\nHelp.\n")
        options = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, agent_name="helper", mode=Mode.AUTO)
        with pytest.raises(HoldfastError, match="holdfast agents approve helper"):
            await host.open(options)
        found = await host.agent_definitions.find("helper", str(folder))
        assert found is not None
        await host.agent_definitions.approve(found, by="ada")
        session = await host.open(options)
        await session.wait_ready()
        available, mode = session.available, session.permission.mode
        with pytest.raises(HoldfastError, match="the agent 'helper' allows at most ask"):
            await session.permission.change_mode(Mode.AUTO, DoorKind.PYTHON)
        await session.close()
        definition.write_text("---\nservers: all\n---\nHelp.\n")
        with pytest.raises(HoldfastError, match="not approved it as it is now"):
            await host.open(options)

    assert available == ("files",)
    assert mode is Mode.ASK


@pytest.mark.promise("AGT-13")
async def test_a_resumed_session_keeps_the_limits_of_its_agents(tmp_path: Path):
    (tmp_path / "home" / "agents").mkdir(parents=True)
    reader, other = (tmp_path / "home" / "agents" / f"{name}.md" for name in ("reader", "other"))
    reader.write_text("---\nservers: [files]\ntools: [files.read]\nmode: ask\n---\nRead.\n")
    other.write_text("---\nservers: all\n---\nDo all.\n")
    folder = tmp_path / "garden"
    plain = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
    async with open_host(tmp_path) as host:

        async def rights(session: Session) -> tuple[Any, ...]:
            await session.wait_ready()
            tools = [tool.name for tool in await session.tools()]
            answers = session.definition.name if session.definition is not None else ""
            found = tools, session.permission.rules.max_mode, session.permission.mode, answers
            await session.close()
            return found

        session = await host.open(replace(plain, agent_name="reader"))
        session_id = session.context.session_id
        opened = await rights(session)
        resumed = await rights(await host.reopen(session_id, plain))
        as_other = await rights(await host.reopen(session_id, replace(plain, agent_name="other")))
        again = await rights(await host.reopen(session_id, plain))
        reader.unlink()
        with pytest.raises(
            HoldfastError, match=r"not resumed without that agent\. There is no agent 'reader'"
        ):
            await host.reopen(session_id, plain)
        unlimited = await host.open(plain)
        control = await rights(await host.reopen(unlimited.context.session_id, plain))

    assert opened == (["files.read"], Mode.ASK, Mode.ASK, "reader")
    assert resumed == opened
    assert as_other == again == (["files.read"], Mode.ASK, Mode.ASK, "other")
    assert (len(control[0]) > 1, control[1], control[3]) == (True, Mode.AUTO, "")


async def test_a_question_of_a_sub_agent_names_it(tmp_path: Path):
    person = Person(Decision.ALLOW_ONCE)

    async def answer(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent:
            await turn.call("shell.run", {"command": "true"})
        else:
            await turn.call("agents.delegate", {"task": "Run it."})

    async with open_host(tmp_path, Scripted(answer)) as host:
        session = await open_in(host, tmp_path / "garden", door=person)
        await session.permission.change_mode(Mode.ASK)
        await session.prompt([{"type": "text", "text": "Go."}])

    assert len(person.questions) == 1
    assert ", asked by the sub-agent agent-" in person.questions[0].title
