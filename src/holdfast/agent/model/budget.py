"""The budget that the runs of several agents share."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from holdfast.agent.model.usage import Usage


class Budget(Protocol):
    """Counts what runs use. All methods except `add_usage` raise BUDGET_EXHAUSTED once the budget is used up."""

    def start_request(self, tokens: int = 0) -> None:
        """Called before each request to a model, with an estimate of its tokens. The estimate counts as used until `add_usage` is called."""
        ...

    def start_call(self) -> None:
        """Called before each tool call."""
        ...

    def add_usage(self, usage: Usage) -> None:
        """Called after each request, even a cancelled one, with what it used."""
        ...

    def limit_time(self) -> AbstractAsyncContextManager[None]:
        """Entered while the agent runs: counts its time, and ends it once the time is used up."""
        ...


class UnlimitedBudget:
    """A budget without limits."""

    def start_request(self, tokens: int = 0) -> None:
        """Allow the request."""

    def start_call(self) -> None:
        """Allow the call."""

    def add_usage(self, usage: Usage) -> None:
        """Count nothing."""

    def limit_time(self) -> AbstractAsyncContextManager[None]:
        """Do not end the agent."""
        return nullcontext()


UNLIMITED_BUDGET = UnlimitedBudget()
