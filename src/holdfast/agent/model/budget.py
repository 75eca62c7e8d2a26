"""The budget that the runs of several agents share."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from holdfast.agent.model.usage import Usage


class Budget(Protocol):
    """Counts what runs use. All methods except `add_usage` raise BUDGET_EXHAUSTED once the budget is used up."""

    def start_request(self, tokens: int = 0) -> None:
        """Count a request to a model before it is sent. `tokens` is an estimate, which counts as used until `add_usage` is called."""
        ...

    def start_call(self) -> None:
        """Count a tool call before it is made."""
        ...

    def add_usage(self, usage: Usage) -> None:
        """Count what a request used, in place of the estimate. Call this after each request, even a cancelled one."""
        ...

    def limit_time(self) -> AbstractAsyncContextManager[None]:
        """A context manager in which the agent runs: it counts the agent's time, and ends the agent once the time is used up."""
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
