"""One budget for a root session, its child sessions, and all of their sub-agents. Shares of it are reserved, used and given back."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Protocol

from holdfast.model import codes
from holdfast.model.budget_limits import BUDGET_NAMES, NO_LIMITS, BudgetLimits
from holdfast.model.errors import HoldfastError

_TOKENS, _CENTS, _CALLS, _SECONDS = range(4)


class _Usage(Protocol):
    """What a request to a model used."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost(self) -> float: ...


class TimeUsedUpError(HoldfastError):
    """An agent was ended because its time is used up."""

    def __init__(self, message: str) -> None:
        super().__init__(codes.BUDGET_EXHAUSTED, message)


class _Budget(ABC):
    """The budget of an agent. The shares of its sub-agents are parts of it.

    Each limit (on tokens, cents, calls or seconds) is identified by its index in `BudgetLimits.amounts`.

    All methods but `limit_time` run on the event loop without waiting, so that no other task runs between a check and its
    reservation.
    """

    def __init__(self) -> None:
        self._expected: list[tuple[float, float]] = []
        """The expected tokens and cents of each request that is running. They count as taken."""

    @property
    @abstractmethod
    def root(self) -> "BudgetPool":
        """The pool of the root session."""

    @abstractmethod
    def check(self, reserved: Set[int] = frozenset()) -> None:
        """Raise BUDGET_EXHAUSTED if a limit is reached.

        The limits whose indexes are in `reserved` are not checked: a sub-agent has reserved a share of them, which already counts as taken.
        """

    @abstractmethod
    def remaining(self, index: int) -> float:
        """How much is neither used nor reserved."""

    @abstractmethod
    def take(self, index: int, amount: float) -> None:
        """Count an amount as taken from this budget and from those above it. A negative amount is given back."""

    @abstractmethod
    def limit_time(
        self, seconds: int = 0, reserved: Set[int] = frozenset()
    ) -> AbstractAsyncContextManager[None]:
        """Count the time of an agent that runs. Once it is used up, end the agent and raise `TimeUsedUpError`.

        Time in which several agents run at once is counted once. `seconds` limits this agent alone; 0 means no limit.
        """

    def start_sub_agent(self, wanted: BudgetLimits) -> "BudgetShare":
        """Reserve a sub-agent and its share, or raise. The caller ends the share.

        Seconds are not reserved: they pass for all agents at the same time.
        """
        root = self.root
        if root.sub_agents >= root.max_sub_agents:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"{root.sub_agents} sub-agents are running, which is the limit. Wait until one has ended.",
            )
        self.check()
        reserved = replace(wanted, seconds=0)
        for index, amount in enumerate(reserved.amounts):
            if amount > self.remaining(index):
                raise _exhausted(
                    f"A sub-agent cannot get {amount} {BUDGET_NAMES[index]}: only {self.remaining(index):g} of the budget are left."
                )
        for index, amount in enumerate(reserved.amounts):
            self.take(index, amount)
        root.count_sub_agent(1)
        return BudgetShare(self, reserved, wanted.seconds)

    def start_request(self, tokens: int = 0) -> None:
        """Count a request to a model that starts. `tokens` is how many it is expected to use."""
        self.check()
        expected = (float(tokens), tokens * self.root.cents_per_token)
        self._expected.append(expected)
        self._take_usage(*expected)

    def start_call(self) -> None:
        """Count a tool call that starts."""
        self.check()
        self.take(_CALLS, 1)

    def add_usage(self, usage: _Usage) -> None:
        """Count what a request has used, in place of what was expected."""
        self._end_request()
        tokens, cents = usage.input_tokens + usage.output_tokens, usage.cost * 100
        self._take_usage(tokens, cents)
        self.root.count_price(tokens, cents)

    def _end_request(self) -> None:
        """Give back what was expected of the oldest running request, if there is one."""
        if self._expected:
            tokens, cents = self._expected.pop(0)
            self._take_usage(-tokens, -cents)

    def _take_usage(self, tokens: float, cents: float) -> None:
        self.take(_TOKENS, tokens)
        self.take(_CENTS, cents)


class BudgetPool(_Budget):
    """What the agents of one root session may use together, and how many sub-agents may run at a time.

    The pool of a child session has a `parent`. What the child uses counts in both pools, and both limits apply.
    """

    def __init__(
        self, limits: BudgetLimits = NO_LIMITS, *, max_sub_agents: int = 4, parent: "BudgetPool | None" = None
    ) -> None:
        super().__init__()
        self._priced = (0, 0.0)  # the tokens and the cents of all requests whose price is known
        self._limits = limits.amounts
        self._taken = [0.0, 0.0, 0.0, 0.0]
        self._running = 0  # how many agents are running
        self._counted_until = 0.0  # `_taken` includes the seconds of the running agents up to this time
        self._levels: tuple[BudgetPool, ...] = (self,) if parent is None else (self, *parent._levels)
        """This pool and its ancestors. The last one is the pool of the root session."""
        self._sub_agents = 0
        self.max_sub_agents: int = max_sub_agents if parent is None else parent.max_sub_agents

    @property
    def root(self) -> "BudgetPool":
        return self._levels[-1]

    @property
    def sub_agents(self) -> int:
        """How many sub-agents are running below the root session."""
        return self.root._sub_agents

    def count_sub_agent(self, change: int) -> None:
        """Count a sub-agent that starts (1) or ends (-1)."""
        self.root._sub_agents += change

    @property
    def cents_per_token(self) -> float:
        """The average price of the requests so far; 0 if no price is known."""
        tokens, cents = self._priced
        return cents / tokens if tokens else 0.0

    def count_price(self, tokens: int, cents: float) -> None:
        """Count a request for the average price, if its price is known."""
        if cents:
            self._priced = self._priced[0] + tokens, self._priced[1] + cents

    def check(self, reserved: Set[int] = frozenset()) -> None:
        for level in self._levels:
            for index, limit in enumerate(level._limits):
                if limit and index not in reserved and level._used(index) >= limit:
                    raise _exhausted(_used_up(limit, BUDGET_NAMES[index]))

    def remaining(self, index: int) -> float:
        limited = (level for level in self._levels if level._limits[index])
        return min((max(0.0, level._limits[index] - level._used(index)) for level in limited), default=inf)

    def take(self, index: int, amount: float) -> None:
        for level in self._levels:
            level._taken[index] += amount

    @asynccontextmanager
    async def limit_time(self, seconds: int = 0, reserved: Set[int] = frozenset()) -> AsyncIterator[None]:
        self.check(reserved)
        limits = [
            (limit - level._used(_SECONDS), _used_up(limit, "seconds"))
            for level in self._levels
            if (limit := level._limits[_SECONDS])
        ]
        if seconds:
            limits.append((seconds, f"The sub-agent was ended after {seconds} s."))
        left, reason = min(limits, default=(None, ""))
        timer = asyncio.timeout(left)
        self._count_running(1)
        try:
            async with timer:
                yield
        except TimeoutError:
            if timer.expired():
                raise TimeUsedUpError(reason) from None
            raise
        finally:
            self._count_running(-1)

    def _count_running(self, change: int) -> None:
        now = time.monotonic()
        for level in self._levels:
            if level._running:
                level._taken[_SECONDS] += now - level._counted_until
            level._running += change
            level._counted_until = now

    def _used(self, index: int) -> float:
        is_increasing = index == _SECONDS and self._running
        return self._taken[index] + (time.monotonic() - self._counted_until if is_increasing else 0.0)


class BudgetShare(_Budget):
    """What was reserved for one sub-agent and those that it starts.

    If no tokens were reserved, these agents use the tokens of the parent's budget; the same holds for cents and calls.
    """

    def __init__(self, parent: _Budget, reserved: BudgetLimits, seconds: int = 0) -> None:
        super().__init__()
        self._parent = parent
        self._reserved = reserved.amounts
        self._own = frozenset(index for index, amount in enumerate(self._reserved) if amount)
        self._seconds = seconds
        self._used = [0.0, 0.0, 0.0, 0.0]
        self._is_ended = False

    @property
    def root(self) -> BudgetPool:
        return self._parent.root

    def check(self, reserved: Set[int] = frozenset()) -> None:
        for index in self._own - reserved:
            if self._used[index] >= self._reserved[index]:
                raise _exhausted(
                    f"The sub-agent's budget of {self._reserved[index]} {BUDGET_NAMES[index]} is used up."
                )
        self._parent.check(self._own | reserved)

    def remaining(self, index: int) -> float:
        if index in self._own:
            return max(0.0, self._reserved[index] - self._used[index])
        return self._parent.remaining(index)

    def take(self, index: int, amount: float) -> None:
        over_before = self._over_reserved(index)
        self._used[index] += amount
        # Once the share has ended, nothing is reserved any more.
        self._parent.take(index, amount if self._is_ended else self._over_reserved(index) - over_before)

    def limit_time(
        self, seconds: int = 0, reserved: Set[int] = frozenset()
    ) -> AbstractAsyncContextManager[None]:
        return self._parent.limit_time(seconds or self._seconds, self._own | reserved)

    def end(self) -> None:
        """Give back what was not used."""
        if self._is_ended:
            return
        while self._expected:  # requests for which `add_usage` was not called
            self._end_request()
        self._is_ended = True
        for index in self._own:
            if self._reserved[index] > self._used[index]:
                self._parent.take(index, self._used[index] - self._reserved[index])
        self.root.count_sub_agent(-1)

    def _over_reserved(self, index: int) -> float:
        return max(0.0, self._used[index] - self._reserved[index])


def _used_up(limit: int, name: str) -> str:
    return f"The session's budget of {limit} {name} is used up."


def _exhausted(message: str) -> HoldfastError:
    return HoldfastError(codes.BUDGET_EXHAUSTED, message)
