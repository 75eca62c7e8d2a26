"""One budget for a root session and all agents below it. Parts of it are reserved, used, and given back."""

import time
from typing import Protocol

from holdfast.model import codes
from holdfast.model.budget_limits import BUDGET_NAMES, NO_LIMITS, BudgetLimits
from holdfast.model.errors import HoldfastError

_TOKENS, _CENTS, _CALLS, _SECONDS = range(4)


class _Used(Protocol):
    """What a request to a model used."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost(self) -> float: ...


class BudgetPool:
    """What the agents of one root session may use together, and how many sub-agents may run at a time.

    All methods run on the event loop without waiting, so that no other task can come between a check and its reservation.
    """

    def __init__(self, limits: BudgetLimits = NO_LIMITS, *, max_children: int = 4) -> None:
        self._limits = limits.amounts
        self._taken = [0.0, 0.0, 0.0, 0.0]
        self.max_children = max_children
        self.children = 0
        """How many sub-agents run now."""

    def check(self, reserved: BudgetLimits = NO_LIMITS) -> None:
        """Raise BUDGET_EXHAUSTED if a limit is reached. Limits of which a part is `reserved` are not checked, because that part already counts as taken."""
        for name, limit, taken, own in zip(
            BUDGET_NAMES, self._limits, self._taken, reserved.amounts, strict=True
        ):
            if limit and not own and taken >= limit:
                raise _exhausted(f"The session's budget of {limit} {name} is used up.")

    def start_child(self, wanted: BudgetLimits) -> "BudgetShare":
        """Reserve a sub-agent and its share, or raise. The caller ends the share."""
        if self.children >= self.max_children:
            raise HoldfastError(
                codes.TOO_MANY_CHILDREN,
                f"{self.children} sub-agents are running, which is the limit. Wait until one has ended.",
            )
        self.check()
        for name, limit, taken, amount in zip(
            BUDGET_NAMES, self._limits, self._taken, wanted.amounts, strict=True
        ):
            if limit and amount and taken + amount > limit:
                raise _exhausted(f"Only {max(0, limit - taken):g} {name} of the session's budget are left.")
        for index, amount in enumerate(wanted.amounts):
            self._taken[index] += amount
        self.children += 1
        return BudgetShare(self, wanted)

    def take(self, index: int, amount: float) -> None:
        """Count what was used beyond a reservation. A negative amount is given back."""
        self._taken[index] += amount

    # The budget of the session's own agent

    def start_request(self) -> None:
        self.check()

    def start_call(self) -> None:
        self.check()
        self.take(_CALLS, 1)

    def add_usage(self, usage: _Used) -> None:
        self.take(_TOKENS, usage.input_tokens + usage.output_tokens)
        self.take(_CENTS, usage.cost * 100)


class BudgetShare:
    """The share of one sub-agent: what was reserved for it, then what the pool has left."""

    def __init__(self, pool: BudgetPool, reserved: BudgetLimits) -> None:
        self._pool = pool
        self._limits = reserved
        self._reserved = reserved.amounts
        self._used = [0.0, 0.0, 0.0, 0.0]
        self._began = time.monotonic()
        self._is_ended = False

    @property
    def seconds(self) -> int:
        """How long the sub-agent may run; 0 means no limit."""
        return self._reserved[_SECONDS]

    def start_request(self) -> None:
        self._check()

    def start_call(self) -> None:
        self._check()
        self._take(_CALLS, 1)

    def add_usage(self, usage: _Used) -> None:
        self._take(_TOKENS, usage.input_tokens + usage.output_tokens)
        self._take(_CENTS, usage.cost * 100)

    def end(self) -> None:
        """Give back what was not used."""
        if self._is_ended:
            return
        self._is_ended = True
        self._take(_SECONDS, time.monotonic() - self._began)
        for index, (reserved, used) in enumerate(zip(self._reserved, self._used, strict=True)):
            if reserved > used:
                self._pool.take(index, used - reserved)
        self._pool.children -= 1

    def _check(self) -> None:
        for name, reserved, used in zip(BUDGET_NAMES, self._reserved, self._used, strict=True):
            if reserved and used >= reserved:
                raise _exhausted(f"The sub-agent's budget of {reserved} {name} is used up.")
        self._pool.check(self._limits)

    def _take(self, index: int, amount: float) -> None:
        beyond_before = max(0.0, self._used[index] - self._reserved[index])
        self._used[index] += amount
        self._pool.take(index, max(0.0, self._used[index] - self._reserved[index]) - beyond_before)


def _exhausted(message: str) -> HoldfastError:
    return HoldfastError(codes.BUDGET_EXHAUSTED, message)
