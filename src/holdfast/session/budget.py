"""One budget for a root session and all agents below it. Parts of it are reserved, used, and given back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
    """The time of an agent is used up, so it was ended."""

    def __init__(self, message: str) -> None:
        super().__init__(codes.BUDGET_EXHAUSTED, message)


class BudgetPool:
    """What the agents of one root session may use together, and how many sub-agents may run at a time.

    The pool of a child session has a `parent`: what the child uses also counts there, and the limits of both apply.

    All methods but `limit_time` run on the event loop without waiting, so that no other task can come between a check and its
    reservation.
    """

    def __init__(
        self, limits: BudgetLimits = NO_LIMITS, *, max_children: int = 4, parent: "BudgetPool | None" = None
    ) -> None:
        self._limits = limits.amounts
        self._taken = [0.0, 0.0, 0.0, 0.0]
        self._running = 0
        self._since = 0.0
        self._levels: tuple[BudgetPool, ...] = (self,) if parent is None else (self, *parent._levels)
        """This pool and those above it. The last one is that of the root session."""
        self._children = 0
        self.max_children: int = max_children if parent is None else parent.max_children

    @property
    def children(self) -> int:
        """How many sub-agents run now, below the root session."""
        return self._levels[-1]._children

    def check(self, reserved: BudgetLimits = NO_LIMITS) -> None:
        """Raise BUDGET_EXHAUSTED if a limit is reached. Limits of which a part is `reserved` are not checked, because that part already counts as taken."""
        for level in self._levels:
            for index, own in enumerate(reserved.amounts):
                limit = level._limits[index]
                if limit and not own and level._used(index) >= limit:
                    raise _exhausted(_used_up(limit, BUDGET_NAMES[index]))

    def start_child(self, wanted: BudgetLimits) -> "BudgetShare":
        """Reserve a sub-agent and its share, or raise. The caller ends the share.

        Seconds are not reserved: they pass for all agents at the same time.
        """
        if self.children >= self.max_children:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"{self.children} sub-agents are running, which is the limit. Wait until one has ended.",
            )
        self.check()
        reserved = replace(wanted, seconds=0)
        for level in self._levels:
            for index, amount in enumerate(reserved.amounts):
                limit, taken = level._limits[index], level._taken[index]
                if limit and amount and taken + amount > limit:
                    raise _exhausted(
                        f"Only {max(0, limit - taken):g} {BUDGET_NAMES[index]} of the session's budget are left."
                    )
        for index, amount in enumerate(reserved.amounts):
            self.take(index, amount)
        self._levels[-1]._children += 1
        return BudgetShare(self, reserved, wanted.seconds)

    def end_child(self) -> None:
        """Count one sub-agent less."""
        self._levels[-1]._children -= 1

    def take(self, index: int, amount: float) -> None:
        """Count an amount as taken, in this pool and in those above it. A negative amount is given back."""
        for level in self._levels:
            level._taken[index] += amount

    @asynccontextmanager
    async def limit_time(self, seconds: int = 0) -> AsyncIterator[None]:
        """Count the time of an agent that runs. Once it is used up, end the agent and raise `TimeUsedUpError`.

        The time in which several agents run counts once. `seconds` is a limit of this agent's own; 0 means no limit.
        """
        self.check()
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

    def _count_running(self, more: int) -> None:
        now = time.monotonic()
        for level in self._levels:
            if level._running:
                level._taken[_SECONDS] += now - level._since
            level._running += more
            level._since = now

    def _used(self, index: int) -> float:
        is_passing = index == _SECONDS and self._running
        return self._taken[index] + (time.monotonic() - self._since if is_passing else 0.0)

    # The budget of the session's own agent

    def start_request(self) -> None:
        self.check()

    def start_call(self) -> None:
        self.check()
        self.take(_CALLS, 1)

    def add_usage(self, usage: _Usage) -> None:
        self.take(_TOKENS, usage.input_tokens + usage.output_tokens)
        self.take(_CENTS, usage.cost * 100)


class BudgetShare:
    """The share of one sub-agent: what was reserved for it. Where nothing was reserved, it uses what the pool has left."""

    def __init__(self, pool: BudgetPool, reserved: BudgetLimits, seconds: int = 0) -> None:
        self._pool = pool
        self._limits = reserved
        self._reserved = reserved.amounts
        self._seconds = seconds
        self._used = [0.0, 0.0, 0.0, 0.0]
        self._is_ended = False

    def start_request(self) -> None:
        self._check()

    def start_call(self) -> None:
        self._check()
        self._take(_CALLS, 1)

    def add_usage(self, usage: _Usage) -> None:
        self._take(_TOKENS, usage.input_tokens + usage.output_tokens)
        self._take(_CENTS, usage.cost * 100)

    @asynccontextmanager
    async def limit_time(self) -> AsyncIterator[None]:
        """Like `BudgetPool.limit_time`; the sub-agent's own limit also applies."""
        async with self._pool.limit_time(self._seconds):
            yield

    def end(self) -> None:
        """Give back what was not used."""
        if self._is_ended:
            return
        self._is_ended = True
        for index, (reserved, used) in enumerate(zip(self._reserved, self._used, strict=True)):
            if reserved > used:
                self._pool.take(index, used - reserved)
        self._pool.end_child()

    def _check(self) -> None:
        for name, reserved, used in zip(BUDGET_NAMES, self._reserved, self._used, strict=True):
            if reserved and used >= reserved:
                raise _exhausted(f"The sub-agent's budget of {reserved} {name} is used up.")
        self._pool.check(self._limits)

    def _take(self, index: int, amount: float) -> None:
        beyond_before = max(0.0, self._used[index] - self._reserved[index])
        self._used[index] += amount
        self._pool.take(index, max(0.0, self._used[index] - self._reserved[index]) - beyond_before)


def _used_up(limit: int, name: str) -> str:
    return f"The session's budget of {limit} {name} is used up."


def _exhausted(message: str) -> HoldfastError:
    return HoldfastError(codes.BUDGET_EXHAUSTED, message)
