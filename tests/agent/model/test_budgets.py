"""Budgets and usage of agents whose model is a scripted endpoint, and which model each agent has."""

import asyncio
import itertools
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import Host, JsonObject, Session
from holdfast.agent.model.usage import sum_usage
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.events import ModelResponded, Replied, ToolCalled, ToolEnded, ToolStarted
from holdfast.host.open_options import OpenOptions
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.testing.scripted_model import (
    Answer,
    Call,
    Fail,
    Hang,
    ModelRequest,
    ScriptedModel,
    Step,
    Text,
    answer,
)
from tests.acp.zed import connected
from tests.agent.model.sessions import model_settings
from tests.agent.model.test_agents import SUB_AGENT, opened

pytestmark = pytest.mark.anyio

OPTIONS: dict[str, Any] = {"extra_builtins": AGENT_SERVERS, "mode": Mode.AUTO}
IS_LONG = bool(os.environ.get("HOLDFAST_LONG_TESTS"))
"""Whether to test every combination, and not only each value once."""


def define(folder: Path, name: str, head: str) -> None:
    agents = folder / "config" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(f"---\n{head}\n---\nWork as {name}.\n")


async def replies_of(host: Host, session: Session) -> str:
    """What the session's own agent said."""
    await session.record.flush()
    return "".join(
        [
            stored.event.text
            async for stored in host.store.events(session.context.session_id)
            if isinstance(stored.event, Replied) and not stored.agent
        ]
    )


def last_result(request: ModelRequest) -> str:
    return [*request.tool_results.values()][-1]


# Time and cost


@pytest.mark.promise("TEAM-07")
async def test_the_seconds_of_a_root_end_its_turn_and_refuse_the_next_one(tmp_path: Path):
    define(tmp_path, "worker", "budget:\n  seconds: 1")
    requests = 0

    def respond(request: ModelRequest) -> Step:
        nonlocal requests
        requests += 1
        return Hang()

    async with opened(tmp_path, respond, agent_name="worker") as (host, session), asyncio.timeout(60):
        first = await session.prompt("Go")
        second = await session.prompt("Go on")
        await session.prompt("/usage")
        replies = await replies_of(host, session)

    assert (first.code, second.code) == ("BUDGET_EXHAUSTED", "BUDGET_EXHAUSTED")
    assert requests <= 1
    assert replies.count("The session's budget of 1 seconds is used up.") == 2
    assert ", 0 calls" in replies or "No model was used" in replies, "commands still run"


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize(
    ("limited", "isolated"),
    [*itertools.product(("root", "child", "call"), (False, True))]
    if IS_LONG
    else [("root", False), ("child", True), ("call", False)],
)
async def test_seconds_end_a_sub_agent(tmp_path: Path, limited: str, *, isolated: bool):
    define(tmp_path, "worker", "budget:\n  seconds: 1" if limited == "root" else "mode: auto")
    define(tmp_path, "small", "budget:\n  seconds: 1" if limited == "child" else "mode: auto")

    def respond(request: ModelRequest) -> Step:
        if SUB_AGENT in request.instructions:
            return Hang()
        if request.tool_results:
            return answer(f"It said: {last_result(request)}")
        task: JsonObject = {"task": "Wait.", "agent": "small", "isolated": isolated}
        return answer(
            Call("agents__delegate", {**task, **({"budget": {"seconds": 1}} if limited == "call" else {})})
        )

    async with opened(tmp_path, respond, agent_name="worker") as (host, session), asyncio.timeout(60):
        result = await session.prompt("Go")
        replies, children = await replies_of(host, session), session.budget.sub_agents

    assert children == 0
    if limited == "root":
        assert result.code == "BUDGET_EXHAUSTED"
        assert "The session's budget of 1 seconds is used up." in replies
    else:
        assert result.ok
        assert "The sub-agent was ended after 1 s." in replies


@pytest.mark.slow
@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("limited", ["root", "child", "call", ""] if IS_LONG else ["root", "call", ""])
async def test_cents_are_a_limit_of_the_root_and_of_each_sub_agent(tmp_path: Path, limited: str):
    """The limits are far below the price of five requests with 300,000 tokens each."""
    define(tmp_path, "worker", "budget:\n  cents: 100" if limited == "root" else "mode: auto")
    define(tmp_path, "small", "budget:\n  cents: 50" if limited == "child" else "mode: auto")
    requests = Counter[str]()

    def respond(request: ModelRequest) -> Step:
        who = "child" if SUB_AGENT in request.instructions else "root"
        requests[who] += 1
        if who == "child":
            done = requests[who] == 5
            return (
                answer("Done.") if done else answer(Call("files__list", {"path": "."}), input_tokens=300_000)
            )
        if request.tool_results:
            return answer(f"It said: {last_result(request)}")
        task: JsonObject = {"task": "Go on.", "agent": "small"}
        return answer(
            Call("agents__delegate", {**task, **({"budget": {"cents": 50}} if limited == "call" else {})})
        )

    model = {"name": "anthropic:claude-sonnet-5"}
    async with opened(tmp_path, respond, agent_name="worker", model=model) as (host, session):
        await session.prompt("Go")
        replies = await replies_of(host, session)

    assert (requests["child"] == 5) is not bool(limited)
    words = {
        "root": "The session's budget of 100 cents is used up",
        "child": "The sub-agent's budget of 50 cents is used up",
        "call": "The sub-agent's budget of 50 cents is used up",
        "": "Done.",
    }
    assert words[limited] in replies


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("isolated", [False, *([True] if IS_LONG else [])])
async def test_a_sub_agent_can_have_all_that_is_left_of_the_budget(tmp_path: Path, *, isolated: bool):
    define(tmp_path, "worker", "budget:\n  tokens: 5000")

    def respond(request: ModelRequest) -> Step:
        if SUB_AGENT in request.instructions:
            return answer("I did it.", input_tokens=900, output_tokens=100)
        if request.tool_results:
            return answer(f"It said: {last_result(request)}", input_tokens=0, output_tokens=1)
        task: JsonObject = {"task": "Go.", "isolated": isolated, "budget": {"tokens": 4000}}
        return answer(Call("agents__delegate", task), input_tokens=900, output_tokens=100)

    async with opened(tmp_path, respond, agent_name="worker") as (host, session):
        await session.prompt("Go")
        replies = await replies_of(host, session)

    assert '"answer":"I did it."' in replies


@pytest.mark.promise("TEAM-07", "TEAM-08", "RES-12")
@pytest.mark.parametrize("by", ["definition", "arguments", "nothing (control)"])
async def test_a_sub_agent_s_own_sub_agent_has_at_most_its_tools_mode_and_budget(tmp_path: Path, by: str):
    define(
        tmp_path,
        "reader",
        'tools: ["files.list", "agents.delegate", "team.*"]\nmode: read-only\nbudget:\n  tokens: 3000',
    )
    narrowed: JsonObject = {"tools": ["files.list", "agents.delegate", "team.*"], "budget": {"tokens": 3000}}
    how: dict[str, JsonObject] = {"definition": {"agent": "reader"}, "arguments": narrowed}
    offered: list[str] = []
    requests = Counter[str]()

    def respond(request: ModelRequest) -> Step:
        who = request.prompt
        requests[who] += 1
        if who == "Deepest":
            offered[:] = request.tools
            if requests[who] > 6:
                return answer("Enough.")
            return answer(Call("files__list", {"path": "."}), input_tokens=900, output_tokens=100)
        if request.tool_results:
            return answer("Done.", input_tokens=0, output_tokens=1)
        if who == "Middle":
            return answer(Call("agents__delegate", {"task": "Deepest"}), input_tokens=0, output_tokens=1)
        return answer(Call("agents__delegate", {"task": "Middle", **how.get(by, {})}))

    async with opened(tmp_path, respond, agents={"max_depth": 3}) as (host, session):
        await session.prompt("Root")
        calls = [
            stored.event
            async for stored in host.store.events(session.context.session_id)
            if isinstance(stored.event, ToolCalled)
        ]

    is_limited = by in how
    assert requests["Deepest"] == (3 if is_limited else 7)
    assert ("files__write" in offered) is not is_limited
    assert "files__list" in offered
    assert "team__create_session" not in offered, "it would have the rights of the whole session"
    assert [call.tool for call in calls[:2]] == ["delegate", "delegate"]


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("budget", ["budget:\n  tokens: 2000", "mode: auto"], ids=["limited", "control"])
async def test_a_created_session_has_at_most_the_budget_of_its_own_definition(tmp_path: Path, budget: str):
    define(tmp_path, "small", budget)
    requests = 0

    def respond(request: ModelRequest) -> Step:
        nonlocal requests
        if "Work as small." not in request.instructions:
            created: JsonObject = {"title": "c", "agent": "small", "initial_message": "Forever."}
            is_created = request.prompt != "Create one" or bool(request.tool_results)
            return answer("Created.") if is_created else answer(Call("team__create_session", created))
        requests += 1
        if requests == 4:
            return answer("Enough.")
        return answer(Call("files__list", {"path": "."}), input_tokens=900, output_tokens=100)

    async with opened(tmp_path, respond) as (host, session):
        await session.prompt("Create one")
        (child,) = session.children.owned
        async with asyncio.timeout(60):
            while child.is_busy:
                await asyncio.sleep(0.01)
        replies = await replies_of(host, child)
        after = await session.prompt("Are you there?")

    is_limited = budget.startswith("budget")
    assert requests == (2 if is_limited else 4)
    assert ("budget of 2000 tokens is used up" in replies) is is_limited
    assert after.ok, "its parent has no budget"


@pytest.mark.promise("AGT-13", "TEAM-07")
async def test_the_budget_of_an_earlier_agent_stays_when_an_editor_chooses_another_one(tmp_path: Path):
    define(tmp_path, "small", "budget:\n  tokens: 2000")
    define(tmp_path, "large", "budget:\n  tokens: 9000\n  calls: 100")
    requests = 0

    def respond(request: ModelRequest) -> Step:
        nonlocal requests
        requests += 1
        if requests == 4:
            return answer("Enough.")
        return answer(Call("files__list", {"path": "."}), input_tokens=900, output_tokens=100)

    async with ScriptedModel(respond) as endpoint:
        loaded = model_settings(tmp_path / "config", endpoint)
        async with Host(settings=loaded) as host, connected(host) as zed:
            session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
            for agent in ("small", "large"):
                await zed.request(
                    "session/set_config_option", sessionId=session, configId="agent", value=agent
                )
            await zed.prompt(session, "Go")

    assert requests == 2
    assert any("budget of 2000 tokens is used up" in text for text in zed.shown("agent_message_chunk"))


# Usage


@pytest.mark.promise("AGT-12")
@pytest.mark.parametrize(
    ("ending", "isolated"),
    [("cancelled", False), ("cancelled", True), ("failed", False), *([("failed", True)] if IS_LONG else [])],
)
async def test_requests_of_a_sub_agent_without_an_answer_are_in_the_usage(
    tmp_path: Path, ending: str, *, isolated: bool
):
    def respond(request: ModelRequest) -> Step:
        if SUB_AGENT not in request.instructions:
            delegate = Call("agents__delegate", {"task": "Look.", "isolated": isolated})
            return answer("Done.") if request.tool_results else answer(delegate)
        if not request.tool_results:
            return answer(Call("files__list", {"path": "."}))
        if ending == "failed":
            return Fail(status=400, message="no")
        # The format of Anthropic reports the tokens of the request in its first event.
        return Answer(parts=(Text(text="I look, and look again, and look."),), input_tokens=70, hold_after=4)

    async with ScriptedModel(respond) as endpoint:
        loaded = model_settings(tmp_path, endpoint, "anthropic")
        async with Host(settings=loaded) as host, asyncio.timeout(60):
            session = await host.open(OpenOptions(cwd=tmp_path, **OPTIONS))
            await session.wait_ready()
            prompting = asyncio.create_task(_prompt(session, "Go"))
            if ending == "cancelled":
                await endpoint.wait_held(1)
                session.cancel()
            await prompting
            used = await sum_usage(host.store.events(session.context.session_id))
            while sum(usage.requests for agent, usage in used.items() if agent) < 2:
                await asyncio.sleep(0.01)  # a cancelled sub-agent ends shortly after the turn
                used = await sum_usage(host.store.events(session.context.session_id))
            await session.prompt("/usage")
            replies = await replies_of(host, session)

    (of_sub_agent,) = (usage for agent, usage in used.items() if agent)
    tokens = 170 if ending == "cancelled" else 100
    assert (of_sub_agent.requests, of_sub_agent.calls, of_sub_agent.input_tokens) == (2, 1, tokens)
    assert f"{tokens} tokens in, " in replies
    assert "2 requests, 1 call" in replies


async def _prompt(session: Session, text: str) -> None:
    await session.prompt(text)


# An isolated sub-agent


@pytest.mark.promise("TEAM-06")
async def test_what_an_isolated_sub_agent_says_and_does_is_in_its_parent_s_log(tmp_path: Path):
    def respond(request: ModelRequest) -> Step:
        if SUB_AGENT in request.instructions:
            if request.tool_results:
                return answer("I looked.")
            return answer("I look.", Call("files__list", {"path": "."}))
        delegate = Call("agents__delegate", {"task": "Look.", "isolated": True})
        return answer("Done.") if request.tool_results else answer(delegate)

    async with ScriptedModel(respond) as endpoint:
        loaded = model_settings(tmp_path, endpoint)
        async with Host(settings=loaded) as host, connected(host) as zed:
            session_id = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
            await zed.prompt(session_id, "Go")
            await zed.prompt(session_id, "/usage")
            session = host.find_live(session_id)
            assert session is not None
            await session.record.flush()
            stored = [event async for event in host.store.events(session.context.session_id)]
            used_servers = await host.store.read(lambda tx: tx.used_servers(session.context.session_id))
        calls = [event for event in stored if isinstance(event.event, ToolCalled) and not event.agent]

    of_sub_agent = [event for event in stored if event.agent]
    (delegated,) = calls
    assert {event.parent_call for event in of_sub_agent} == {delegated.event.call_id}  # type: ignore[union-attr]
    assert [type(event.event) for event in of_sub_agent] == [
        Replied,
        ModelResponded,
        ToolCalled,
        ToolEnded,
        Replied,
        ModelResponded,
    ]
    ended = next(
        event.seq
        for event in stored
        if isinstance(event.event, ToolEnded) and event.event.call_id == delegated.event.call_id  # type: ignore[union-attr]
    )
    assert max(event.seq for event in of_sub_agent) < ended, "before the result of the call"
    assert any("I look." in str(update.get("content")) for update in zed.updates("tool_call_update"))
    assert (
        "200 tokens in, 40 out, 2 requests, 1 call" in zed.shown("agent_message_chunk")[-1].splitlines()[-1]
    )
    assert "files" not in used_servers, "its servers are its own"
    assert any(isinstance(event.event, ToolStarted) for event in stored)


# Models


MODELS = {"name": "openai-chat:first", "also": ("openai-chat:second", "openai-chat:third")}


@pytest.mark.promise("AGT-13")
async def test_the_model_that_the_user_chooses_is_used_before_that_of_the_definition(tmp_path: Path):
    define(tmp_path, "second", "model: openai-chat:second")
    async with ScriptedModel(lambda request: answer(request.model)) as endpoint:
        loaded = model_settings(tmp_path / "config", endpoint, more=MODELS)
        async with Host(settings=loaded) as host, connected(host) as zed:

            async def ask(session: str) -> str:
                await zed.prompt(session, "Which?")
                return zed.shown("agent_message_chunk")[-1]

            async def choose(session: str, option: str, value: str) -> None:
                await zed.request(
                    "session/set_config_option", sessionId=session, configId=option, value=value
                )

            session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
            answers = [await ask(session)]
            await choose(session, "agent", "second")
            answers.append(await ask(session))
            await choose(session, "model", "openai-chat:third")
            answers.append(await ask(session))
            await zed.prompt(session, "/model openai-chat:first")
            answers.append(await ask(session))
            await zed.request("session/close", sessionId=session)
            await zed.request("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            answers.append(await ask(session))
            opening = OpenOptions(cwd=tmp_path, agent_name="second", model="openai-chat:third")
            by_option = await host.open(opening)
            await by_option.prompt("Which?")
            answers.append(await replies_of(host, by_option))

    assert answers == ["first", "second", "third", "first", "first", "third"]


@pytest.mark.promise("AGT-13")
@pytest.mark.parametrize("way", ["delegate", "isolated", "create_session"])
async def test_an_agent_that_another_one_starts_has_the_model_of_its_definition_or_of_its_parent(
    tmp_path: Path, way: str
):
    define(tmp_path, "second", "model: openai-chat:second")
    define(tmp_path, "plain", "mode: auto")
    models = dict[str, str]()

    def respond(request: ModelRequest) -> Step:
        for name in ("second", "plain"):
            if f"Work as {name}." in request.instructions:
                models[name] = request.model
                return answer("Done.")
        if request.tool_results:
            return answer("Done.")
        name = request.prompt
        if way == "create_session":
            return answer(
                Call("team__create_session", {"title": "c", "agent": name, "initial_message": "Go."})
            )
        task: JsonObject = {"task": "Go.", "agent": name, "isolated": way == "isolated"}
        return answer(Call("agents__delegate", task))

    async with ScriptedModel(respond) as endpoint:
        loaded = model_settings(tmp_path / "config", endpoint, more=MODELS)
        async with Host(settings=loaded) as host, asyncio.timeout(60):
            (tmp_path / "project").mkdir()
            host.registry.add(tmp_path / "project", trust=Trust.DIRECT)
            for name in ("second", "plain"):
                session = await host.open(OpenOptions(cwd=tmp_path / "project", **OPTIONS))
                await session.wait_ready()
                await session.prompt("/model openai-chat:third")
                await session.prompt(name)
                while name not in models:
                    await asyncio.sleep(0.01)

    assert models == {"second": "second", "plain": "third"}
