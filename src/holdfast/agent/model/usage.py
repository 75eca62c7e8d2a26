"""How many tokens, requests and calls a turn used, and what they cost."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.agent.model.config import CUSTOM_ENDPOINT
from holdfast.model.event import ModelResponded, TurnEnded
from holdfast.model.json import JsonObject
from holdfast.model.plural import count
from holdfast.store.types import StoredEvent

if TYPE_CHECKING:
    from pydantic_ai.models import StreamedResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one or more requests to models used. A cancelled request counts with what the endpoint had reported before."""

    requests: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The input tokens that the endpoint read from its cache."""
    cost: float = 0.0
    """In US dollars. Only requests with a known price count."""
    unpriced: int = 0
    """How many requests have no known price."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            requests=self.requests + other.requests,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=self.cost + other.cost,
            unpriced=self.unpriced + other.unpriced,
        )

    def to_json(self) -> JsonObject:
        """The usage as it is stored in an event. Zeros are left out."""
        values: JsonObject = {
            "requests": self.requests,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "usd": round(self.cost, 6),
            "unpriced": self.unpriced,
        }
        return {name: value for name, value in values.items() if value}

    @staticmethod
    def from_json(stored: JsonObject) -> "Usage":
        return Usage(
            requests=_get_int(stored, "requests"),
            calls=_get_int(stored, "calls"),
            input_tokens=_get_int(stored, "input_tokens"),
            output_tokens=_get_int(stored, "output_tokens"),
            cached_tokens=_get_int(stored, "cached_tokens"),
            cost=_get_float(stored, "usd"),
            unpriced=_get_int(stored, "unpriced"),
        )

    def describe(self) -> str:
        """The usage as one line of text for the user."""
        cost = f", ${self.cost:.4f}" if self.cost else ""
        unpriced = f" ({count(self.unpriced, 'request')} without a known price)" if self.unpriced else ""
        return (
            f"{count(self.input_tokens, 'token')} in, {self.output_tokens} out, {count(self.requests, 'request')},"
            f" {count(self.calls, 'call')}{cost}{unpriced}"
        )


async def sum_usage(events: AsyncIterator[StoredEvent]) -> dict[str, Usage]:
    """Return what each agent of a session has used, by the agent's id. The id of the session's own agent is empty.

    `TurnEnded` says what the session's own agent used in the turn. If a turn has not ended, or its process was killed, the usage of the
    individual answers is added up instead.
    """
    by_agent: dict[str, Usage] = {}
    turn_usage: Usage | None = None
    """The usage of the session's own agent in the answers of the current turn."""
    async for stored in events:
        match stored.event:
            case TurnEnded(usage=usage) if not stored.agent:
                used = Usage.from_json(usage) if "requests" in usage else turn_usage
                turn_usage = None
                if used is None:
                    continue
            case ModelResponded(usage=usage, calls=calls):
                used = Usage.from_json(usage) + Usage(calls=len(calls))
                if not stored.agent:
                    turn_usage = used if turn_usage is None else turn_usage + used
                    continue
            case _:
                continue
        by_agent[stored.agent] = by_agent.get(stored.agent, Usage()) + used
    if turn_usage is not None:
        by_agent[""] = by_agent.get("", Usage()) + turn_usage
    return by_agent


def describe_usage(by_agent: Mapping[str, Usage]) -> list[tuple[str, str]]:
    """Return the id of each agent, and its usage as one line of text for the user."""
    return [(agent or "this agent", usage.describe()) for agent, usage in by_agent.items()]


def cost_of(stream: "StreamedResponse | None") -> float | None:
    """Return the cost in US dollars of what has arrived of an answer; None if nothing has, or if the price of the model is not known."""
    if stream is None or stream.provider_name == CUSTOM_ENDPOINT:
        return None
    try:
        return float(stream.get().cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def _get_int(stored: JsonObject, name: str) -> int:
    value = stored.get(name)
    return value if isinstance(value, int) else 0


def _get_float(stored: JsonObject, name: str) -> float:
    value = stored.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
