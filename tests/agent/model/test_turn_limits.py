"""The limits of a turn: requests, calls and cost."""

from pathlib import Path

import pytest

from holdfast.events import Outcome, StopReason, ToolEnded, TurnEnded
from holdfast.testing.scripted_model import Call, ModelRequest, Step, answer
from tests.agent.model.sessions import conversation

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.promise("AGT-07")
async def test_a_model_that_loops_is_ended_by_the_limits_of_a_turn(tmp_path: Path):
    asked = 0

    def loop(request: ModelRequest) -> Step:
        nonlocal asked
        asked += 1
        if asked > 8:
            return answer("Enough.")
        return answer(*[Call("files__list", {"path": "."})] * 3, input_tokens=1000)

    reasons: list[StopReason] = []
    for number, limit in enumerate(({"max_requests": 4}, {"max_calls": 7}, {})):
        asked = 0
        async with conversation(tmp_path / str(number), loop, model=limit) as talk:
            reasons.append((await talk.session.prompt("Go on")).reason)
            ended = (await talk.events())[-1]
            assert isinstance(ended, TurnEnded)
            assert (int(str(ended.usage["requests"])) <= 4) is bool(limit)
            assert (int(str(ended.usage["calls"])) <= 12) is bool(limit)

    # The last one is a control: within the usual limits, nothing ends the loop.
    assert reasons == [*[StopReason.MAX_TURN_REQUESTS] * 2, StopReason.END_TURN]


@pytest.mark.promise("AGT-07")
async def test_a_turn_that_costs_too_much_is_ended(tmp_path: Path):
    def loop(request: ModelRequest) -> Step:
        return answer(Call("files__list", {"path": "."}), input_tokens=1_000_000)

    async with conversation(
        tmp_path, loop, "anthropic", model={"name": "anthropic:claude-sonnet-5", "max_cost_cents": 100}
    ) as talk:
        result = await talk.session.prompt("Go on")
        ended = (await talk.events())[-1]

    assert result.reason is StopReason.MAX_TURN_REQUESTS
    assert isinstance(ended, TurnEnded)
    assert ended.usage["requests"] == 1
    assert float(str(ended.usage["usd"])) > 1


async def test_the_cost_of_a_session_includes_what_it_cost_before_it_was_opened_again(tmp_path: Path):
    script = [answer("One.", input_tokens=1_000_000), answer("Two.", input_tokens=1_000_000)]
    async with conversation(
        tmp_path, script, "anthropic", model={"name": "anthropic:claude-sonnet-5"}
    ) as talk:
        await talk.session.prompt("First")
        await talk.session.close()
        async with talk.host.reopen(talk.session.context.session_id) as again:
            await again.prompt("Second")
        ended = [event for event in await talk.events() if isinstance(event, TurnEnded)]

    (first, second) = (_amount(event) for event in ended)
    assert first > 1
    assert second == pytest.approx(2 * first)


def _amount(ended: TurnEnded) -> float:
    """What the session had cost when the turn ended."""
    match ended.usage["cost"]:
        case {"amount": float(amount), "currency": "USD"}:
            return amount
        case cost:
            raise AssertionError(cost)


@pytest.mark.promise("AGT-07")
async def test_a_limit_of_calls_that_is_reached_among_parallel_calls_ends_none_of_the_others(tmp_path: Path):
    script = [answer(*[Call("files__list", {"path": "."})] * 3), answer("I go on.")]
    async with conversation(tmp_path, script, model={"max_calls": 2}) as talk:
        result = await talk.session.prompt("Go")
        events = await talk.events()
        await talk.session.prompt("Go on")
        results = [message.text for message in talk.endpoint.requests[-1].messages if message.role == "tool"]

    ended = [(event.outcome, event.code) for event in events if isinstance(event, ToolEnded)]
    assert (result.reason, result.code) == (StopReason.MAX_TURN_REQUESTS, "MODEL_LIMIT")
    assert sorted(ended) == [(Outcome.COMPLETED, "")] * 2 + [(Outcome.REFUSED, "MODEL_LIMIT")]
    assert ["Nothing was called." in text for text in results] == [False, False, True]
