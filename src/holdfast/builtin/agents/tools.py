"""The tool that gives a task to a sub-agent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import CallFacts, read_call_facts
from holdfast.model import codes
from holdfast.model.budget_limits import BudgetLimits
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

_MAX_TASK = 50_000
_MAX_NUMBER = 10**9
_DAY_SECONDS = 24 * 3600.0
Number = Annotated[int, Meta(ge=1, le=_MAX_NUMBER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """A task for a sub-agent, and what it may use."""

    task: str
    agent: str = ""
    tools: tuple[str, ...] | None = None
    budget: BudgetLimits
    isolated: bool = False


Delegate = Callable[[SessionId, CallFacts, Delegation], Awaitable[str]]
"""Runs a sub-agent of a session, and returns its last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The argument `budget`: limits of a sub-agent."""

    tokens: Number | None = None
    cents: Number | None = None
    calls: Number | None = None
    seconds: Number | None = None


def agents_service(context: SessionContext, delegate: Delegate) -> Service:
    """Return the in-process server with the tool `delegate` for one session."""
    return agents_toolbox(context, delegate).server(EnvironmentAuthenticator(context))


def agents_toolbox(context: SessionContext, delegate: Delegate) -> Toolbox:
    """Return the tool `delegate` for one session."""
    box = Toolbox("agents", version=__version__)
    box.slow_after = _DAY_SECONDS

    # A query: starting a sub-agent needs no permission. Its own calls are checked one by one.
    @box.tool(
        name="delegate",
        title="Give a task to a sub-agent",
        operation="query",
        codes=[
            codes.TOO_MANY_CHILDREN.name,
            codes.BUDGET_EXHAUSTED.name,
            codes.UNKNOWN_AGENT.name,
            codes.NOT_APPROVED.name,
            codes.MODEL_UNAVAILABLE.name,
        ],
        meta={"dev.holdfast/kind": "think"},
        annotations=Annotations(idempotent=False),
    )
    async def run(
        task: Annotated[
            str, Meta(min_length=1, max_length=_MAX_TASK, description="All that it needs to know.")
        ],
        call: Call,
        agent: Annotated[str, Meta(max_length=64, description="The name of an agent definition.")] = "",
        tools: Annotated[list[str], Meta(max_length=50, description="Patterns, such as files.*")]
        | None = None,
        budget: Limits | None = None,
        isolated: Annotated[bool, "Start servers of its own, instead of sharing yours."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Let a sub-agent do a task with a fresh history and at most your tools. Returns its last message. Several can run at once."""
        wanted = budget or Limits()
        limits = BudgetLimits(
            tokens=wanted.tokens or 0,
            cents=wanted.cents or 0,
            calls=wanted.calls or 0,
            seconds=wanted.seconds or 0,
        )
        delegation = Delegation(
            task=task,
            agent=agent,
            tools=None if tools is None else tuple(tools),
            budget=limits,
            isolated=isolated,
        )
        return {"answer": await delegate(context.session_id, read_call_facts(call), delegation)}

    return box
