"""The limits of a turn with all of its sub-agents: how many requests to the model and how many calls it may make, and what it may cost."""

from dataclasses import dataclass, field

from holdfast.agent.model import failures
from holdfast.agent.model.config import ModelLimits
from holdfast.agent.model.failures import LimitReachedError
from holdfast.agent.model.usage import Usage


@dataclass(slots=True)
class TurnTotal:
    """What a turn has used, with all of its sub-agents. The limits of a turn apply to this total."""

    usage: Usage = field(default_factory=Usage)

    def check_request(self, limits: ModelLimits) -> None:
        """Raise the error that ends the turn if it may not make another request."""
        if self.usage.requests >= limits.max_requests:
            raise failures.too_many_requests(limits.max_requests)
        if limits.max_cost and self.usage.cost > limits.max_cost:
            raise failures.too_expensive(limits.max_cost)

    def find_call_limit(self, limits: ModelLimits) -> LimitReachedError | None:
        """Return the error that ends the turn if it may not make another call; else None."""
        return failures.too_many_calls(limits.max_calls) if self.usage.calls >= limits.max_calls else None
