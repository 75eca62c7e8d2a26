"""How much agents may use together: tokens, cost, tool calls and time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """The limits of a budget. 0 means no limit. `holdfast.session.budget` enforces them."""

    tokens: int = 0
    cents: int = 0
    """The cost in US cents, where the model's price is known."""
    calls: int = 0
    seconds: int = 0

    @property
    def amounts(self) -> tuple[int, int, int, int]:
        """The limits in the order tokens, cents, calls, seconds."""
        return self.tokens, self.cents, self.calls, self.seconds

    def lowest(self, *others: "BudgetLimits") -> "BudgetLimits":
        """The lowest limit of each kind, where 0 is no limit."""
        all_amounts = [self.amounts, *(other.amounts for other in others)]
        lowest = [
            min(filter(None, [amounts[index] for amounts in all_amounts]), default=0) for index in range(4)
        ]
        return BudgetLimits(tokens=lowest[0], cents=lowest[1], calls=lowest[2], seconds=lowest[3])


NO_LIMITS = BudgetLimits()
BUDGET_NAMES = ("tokens", "cents", "calls", "seconds")
