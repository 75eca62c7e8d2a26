"""The budget that the runs of several agents share."""

from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agent.model.usage import Usage


class Budget(Protocol):
    """Counts what runs use. Each method raises BUDGET_EXHAUSTED once the budget is used up."""

    def start_request(self) -> None:
        """Called before each request to a model."""
        ...

    def start_call(self) -> None:
        """Called before each tool call."""
        ...

    def add_usage(self, usage: Usage) -> None:
        """Called after each request, even a cancelled one, with what it used."""
        ...


@dataclass(slots=True)
class TurnTotal:
    """What a turn has used, with all of its sub-agents. The limits of a turn apply to this total."""

    usage: Usage = field(default_factory=Usage)


class UnlimitedBudget:
    """A budget without limits."""

    def start_request(self) -> None:
        """Allow the request."""

    def start_call(self) -> None:
        """Allow the call."""

    def add_usage(self, usage: Usage) -> None:
        """Count nothing."""


NO_BUDGET = UnlimitedBudget()
