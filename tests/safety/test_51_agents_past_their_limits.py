"""Attack 51: agents that race for a budget, or create sessions in a loop, to pass their limits."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.agent.agent import TurnContext
from holdfast.agent.model.usage import Usage
from holdfast.host import created_sessions
from holdfast.model import codes
from holdfast.model.budget_limits import BudgetLimits
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ToolCalled, ToolEnded
from holdfast.model.json import JsonObject
from holdfast.session.budget import BudgetPool
from holdfast.session.session import Session
from holdfast.testing.scripted_model import Call, ModelRequest, Step, answer
from tests.agent.model.test_agents import opened
from tests.host.test_team import Scripted, open_host, open_in

pytestmark = pytest.mark.anyio


def take_nothing(pool: BudgetPool, index: int, amount: float) -> None:
    """The protection turned off: what others use or reserved does not count."""


async def race(pool: BudgetPool, tokens: int, agents: int) -> tuple[int, int, set[Code]]:
    """Start agents at the same time. Return how many started, their highest sum of tokens, and why others were refused."""
    running: list[int] = []
    peak, refused = 0, set[Code]()

    async def spawn() -> bool:
        nonlocal peak
        await asyncio.sleep(0)
        try:
            share = pool.start_sub_agent(BudgetLimits(tokens=tokens))
        except HoldfastError as error:
            refused.add(error.code)
            return False
        running.append(tokens)
        peak = max(peak, sum(running))
        await asyncio.sleep(0)
        running.remove(tokens)
        share.end()
        return True

    started = await asyncio.gather(*(spawn() for _ in range(agents)))
    return sum(started), peak, refused


@pytest.mark.promise("TEAM-07")
async def test_races_for_a_budget_never_pass_it():
    for _ in range(1000 if os.environ.get("HOLDFAST_LONG_TESTS") else 100):
        pool = BudgetPool(BudgetLimits(tokens=100, calls=10), max_sub_agents=50)
        started, peak, refused = await race(pool, 30, 8)

        assert (started >= 3, peak <= 100) == (True, True)
        assert refused <= {codes.BUDGET_EXHAUSTED}
        assert (await race(pool, 100, 1))[0] == 1, "what was not used was given back"


@pytest.mark.parametrize("off", ["no budget", "no reservation"])
async def test_control_without_a_reservation_all_run_at_once(monkeypatch: pytest.MonkeyPatch, off: str):
    if off == "no reservation":  # the pool checks what is left, but what others reserved does not count
        monkeypatch.setattr(BudgetPool, "take", take_nothing)
    limits = BudgetLimits() if off == "no budget" else BudgetLimits(tokens=100, calls=10)

    assert await race(BudgetPool(limits, max_sub_agents=50), 30, 8) == (8, 240, set())


@contextmanager
def count_when_open(
    created: created_sessions.CreatedSessions, parent: Session
) -> Iterator[Callable[[Session], None]]:
    """The protection turned off: a child counts once it is open, and not while it is being opened."""
    children = created._children.setdefault(parent.context.session_id, created_sessions._Children())  # pyright: ignore[reportPrivateUsage]
    if children.count >= created_sessions.MAX_CREATED_SESSIONS:
        raise HoldfastError(codes.TOO_MANY_CHILDREN, "enough")

    def keep(child: Session) -> None:
        children.count += 1

    yield keep


@pytest.mark.promise("TEAM-02", "TEAM-07")
@pytest.mark.parametrize("is_atomic", [True, False], ids=["reserved", "control: counted later"])
async def test_creations_at_the_same_time_never_pass_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_atomic: bool
):
    monkeypatch.setattr(created_sessions, "CREATION_SECONDS", 0.0)
    monkeypatch.setattr(created_sessions, "MAX_CREATED_SESSIONS", 2)
    if not is_atomic:
        monkeypatch.setattr(created_sessions.CreatedSessions, "reserve", count_when_open)
    async with open_host(tmp_path) as host:
        root = await open_in(host, tmp_path / "garden")
        arguments = {"title": "x", "initial_message": "x"}
        created = await asyncio.gather(*(root.call("team.create_session", arguments) for _ in range(5)))

    started = sum(one.ok for one in created)
    assert (started == 2) if is_atomic else (started > 2)


@pytest.mark.slow
@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("is_limited", [True, False], ids=["limited", "control: without limits"])
async def test_a_spawning_loop_ends_at_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_limited: bool
):
    monkeypatch.setattr(created_sessions, "CREATION_SECONDS", 0.0)
    monkeypatch.setattr(created_sessions, "MAX_CREATED_SESSIONS", 3 if is_limited else 100)
    enough, created = asyncio.Event(), list[str]()

    async def spawn(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        for _ in range(5):
            if len(created) >= 12:
                enough.set()
                return
            result = await turn.call("team.create_session", {"title": "more", "initial_message": "Spawn."})
            if result.ok:
                created.append(result.data["session_id"])

    async with open_host(tmp_path, Scripted(spawn)) as host:
        if not is_limited:
            host._parts.team._created._max_depth = 100  # pyright: ignore[reportPrivateUsage]
        root = await open_in(host, tmp_path / "garden")
        await root.prompt([{"type": "text", "text": "Spawn."}])
        if not is_limited:
            async with asyncio.timeout(60):
                await enough.wait()
        else:
            children = [host.find_live(child) for child in created]
            while any(child is not None and child.is_busy for child in children):
                await asyncio.sleep(0.01)
            tried = [
                stored.event
                for child in created
                async for stored in host.store.events(host.find_live(child).context.session_id)  # type: ignore[union-attr]
                if isinstance(stored.event, ToolCalled)
            ]
            assert tried, "the children tried, too"

    assert (len(created) == 3) if is_limited else (len(created) >= 12)


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("protection", ["limited", "control: no budget", "control: nothing is reserved"])
async def test_races_of_every_way_to_start_an_agent_never_pass_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str
):
    monkeypatch.setattr(created_sessions, "CREATION_SECONDS", 0.0)
    if protection == "control: nothing is reserved":
        monkeypatch.setattr(BudgetPool, "take", take_nothing)
    budget = "mode: auto" if protection == "control: no budget" else "budget:\n  tokens: 100"
    (tmp_path / "home" / "agents").mkdir(parents=True)
    (tmp_path / "home" / "agents" / "root.md").write_text(f"---\n{budget}\n---\nWork.\n")
    spent, tried, all_tried = 0, set[str](), asyncio.Event()

    def try_to_start(name: str) -> None:
        tried.add(name)
        if len(tried) == 5:
            all_tried.set()

    async def spend(name: str, turn: TurnContext) -> None:
        nonlocal spent
        turn.budget.start_request(30)
        try_to_start(name)
        await all_tried.wait()  # while this request is running, all others start
        turn.budget.add_usage(Usage(input_tokens=30))
        spent += 30

    async def delegate(name: str, turn: TurnContext, *, isolated: bool) -> None:
        await turn.call("agents.delegate", {"task": name, "isolated": isolated})
        try_to_start(name)  # if it was refused

    async def act(blocks: Sequence[JsonObject], turn: TurnContext) -> None:
        if turn.origin.agent or turn.sender:
            await spend("child" if turn.sender else str(blocks[0]["text"]), turn)
            return
        created = await turn.call("team.create_session", {"title": "child", "initial_message": "Spend."})
        assert created.ok, created.text
        await asyncio.gather(*(delegate(str(n), turn, isolated=n > 1) for n in range(4)))

    rounds = 200 if os.environ.get("HOLDFAST_LONG_TESTS") else 2  # of five agents each
    async with open_host(tmp_path, Scripted(act)) as host:
        for _ in range(rounds):
            spent, tried, all_tried = 0, set[str](), asyncio.Event()
            root = await open_in(host, tmp_path / "garden", agent_name="root")
            async with asyncio.timeout(60):
                result = await root.prompt("Spend.")
                children = [*root.children.owned]
                while any(child.is_busy for child in children):
                    await asyncio.sleep(0.01)
            await root.close()

            assert result.ok, result.message
            assert (spent < 130) if protection == "limited" else (spent == 150)


def expect_nothing(*_: object) -> int:
    """The protection turned off: what a running request will use does not count."""
    return 0


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "control: counted when they end"])
async def test_requests_that_run_at_the_same_time_pass_the_budget_by_at_most_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_counted: bool
):
    if not is_counted:
        from holdfast.agent.model import run

        monkeypatch.setattr(run, "expected_tokens", expect_nothing)
    agents = tmp_path / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "root.md").write_text("---\nbudget:\n  tokens: 25000\n---\nWork.\n")
    # Its instructions have about 10,000 tokens.
    (agents / "large.md").write_text(f"---\ntools: [files.list]\n---\n{'Long. ' * 7000}\n")
    running, all_tried = 0, asyncio.Event()

    async def think(request: ModelRequest) -> Step:
        nonlocal running
        if "Long. Long." not in request.instructions:
            task: JsonObject = {"task": "Go.", "agent": "large"}
            return answer("Done.") if request.tool_results else answer(*[Call("agents__delegate", task)] * 4)
        running += 1
        await all_tried.wait()
        return answer("Done.", input_tokens=10_000)

    async with opened(tmp_path, think, agent_name="root") as (host, session), asyncio.timeout(60):
        prompting = asyncio.ensure_future(session.prompt("Go"))
        refused = 0
        while running + refused < 4:
            await asyncio.sleep(0.01)
            stored = [one.event async for one in host.store.events(session.context.session_id)]
            refused = sum(isinstance(one, ToolEnded) and one.code == "BUDGET_EXHAUSTED" for one in stored)
        all_tried.set()
        await prompting

    assert (running, refused) == ((3, 1) if is_counted else (4, 0))
