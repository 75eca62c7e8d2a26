"""Shares of a budget: what is reserved for a sub-agent is for it and for those that it starts, and is given back once."""

import pytest

from holdfast.agent.model.usage import Usage
from holdfast.model import codes
from holdfast.model.budget_limits import BudgetLimits
from holdfast.model.errors import HoldfastError
from holdfast.session.budget import BudgetPool, BudgetShare

pytestmark = pytest.mark.anyio

KINDS = {"tokens": BudgetLimits(tokens=100), "cents": BudgetLimits(cents=100), "calls": BudgetLimits(calls=5)}


def use(share: BudgetPool | BudgetShare, tokens: int) -> None:
    share.start_request()
    share.add_usage(Usage(input_tokens=tokens))


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("limits", KINDS.values(), ids=KINDS)
async def test_a_sub_agent_that_reserves_all_that_is_left_works_and_others_wait(limits: BudgetLimits):
    pool = BudgetPool(limits)
    share = pool.start_sub_agent(limits)

    async with share.limit_time():
        share.start_request()
        share.start_call()
    with pytest.raises(HoldfastError) as refused:
        async with pool.limit_time():
            pass
    share.end()
    async with pool.limit_time():
        pass

    assert refused.value.code is codes.BUDGET_EXHAUSTED


@pytest.mark.promise("TEAM-07")
async def test_a_sub_agent_of_a_sub_agent_uses_the_share_of_its_parent():
    pool = BudgetPool(BudgetLimits(tokens=1000))
    share = pool.start_sub_agent(BudgetLimits(tokens=100))
    inner = share.start_sub_agent(BudgetLimits())

    async with share.limit_time(), inner.limit_time():
        use(inner, 100)
    with pytest.raises(HoldfastError, match="The sub-agent's budget of 100 tokens is used up"):
        inner.start_request()
    with pytest.raises(HoldfastError, match="The sub-agent's budget of 100 tokens is used up"):
        share.start_call()

    assert pool.remaining(0) == 900


@pytest.mark.promise("TEAM-07")
@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_what_nested_shares_did_not_use_is_given_back_in_whatever_order_they_end(first: str):
    pool = BudgetPool(BudgetLimits(tokens=1000))
    share = pool.start_sub_agent(BudgetLimits(tokens=400))
    inner = share.start_sub_agent(BudgetLimits(tokens=400))
    use(inner, 30)

    assert (pool.remaining(0), share.remaining(0), pool.sub_agents) == (600, 0, 2)
    with pytest.raises(HoldfastError, match="The sub-agent's budget of 400 tokens is used up"):
        share.start_sub_agent(BudgetLimits(tokens=1))
    for each in (inner, share) if first == "inner" else (share, inner):
        each.end()
        each.end()

    assert (pool.remaining(0), pool.sub_agents) == (970, 0)


@pytest.mark.promise("TEAM-07")
async def test_a_sub_agent_cannot_reserve_more_than_its_parent_has_left():
    pool = BudgetPool(BudgetLimits(tokens=1000))
    share = pool.start_sub_agent(BudgetLimits(tokens=100))
    use(share, 40)

    with pytest.raises(HoldfastError, match="cannot get 61 tokens: only 60 of the budget are left"):
        share.start_sub_agent(BudgetLimits(tokens=61))
    inner = share.start_sub_agent(BudgetLimits(tokens=60))

    assert (share.remaining(0), inner.remaining(0), pool.remaining(0)) == (0, 60, 900)
